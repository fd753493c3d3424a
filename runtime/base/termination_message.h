// SPDX-License-Identifier: Apache-2.0
//
// What a member's program leaves for its supervisor: the kubelet puts it into the pod's status,
// `pushpull run` reads the file. With this message, not with its exit code, a program says that it
// would end the same way again, because of its command line or its input, or that the job has to
// start again from a checkpoint, because what it needs is gone. The library says so when a worker
// leaves because it was released: its exit code is that of one that is done, and the coordinator
// that released it may be gone when somebody asks.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Environment variable with the path of the file.
inline constexpr char kTerminationLogVariable[] = "PUSHPULL_TERMINATION_LOG";
// The path that Kubernetes reads, unless a container sets another.
inline constexpr char kTerminationLogOfPods[] = "/dev/termination-log";
// Size of the file, in bytes; anything beyond is not read. Kubernetes' own limit.
inline constexpr size_t kTerminationMessageMax = 4096;

// Writes that the end is final. An empty path: nobody watches. If the file cannot be written, the
// end counts as any other.
void WriteFinalMessage(const std::string& path, absl::string_view why);

// Likewise, that the worker was released.
void WriteReleasedMessage(const std::string& path);

struct ToldEnd {
  enum class Kind { kFinal, kRestartsJob, kReleased };
  Kind kind = Kind::kFinal;
  std::string reason;  // empty: kReleased

  bool is_final() const { return kind == Kind::kFinal; }
  // All members must start again.
  bool restarts_job() const { return kind == Kind::kRestartsJob; }
  bool was_released() const { return kind == Kind::kReleased; }
};
// What the program says of its end; none: nothing.
std::optional<ToldEnd> ToldEndOf(absl::string_view message);

}  // namespace pushpull
