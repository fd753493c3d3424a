// SPDX-License-Identifier: Apache-2.0
//
// What a member's program leaves for whoever watches it: the kubelet puts it into the pod's status,
// `pushpull run` reads the file. By it, and not by its exit code, a program says that it would end
// the same way again, because of its command line or of what it reads.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Names the file.
inline constexpr char kTerminationLogVariable[] = "PUSHPULL_TERMINATION_LOG";
// Where Kubernetes looks, unless a container says otherwise.
inline constexpr char kTerminationLogOfPods[] = "/dev/termination-log";
// Of the file, in bytes; what is beyond is not read. Kubernetes' own limit.
inline constexpr size_t kTerminationMessageMax = 4096;

// Writes that the end is final. An empty path: nobody watches. Where the file cannot be written,
// the end is one like any other.
void WriteFinalMessage(const std::string& path, absl::string_view why);

// Why the end is final; none: the message does not say that it is.
std::optional<std::string> FinalReasonOf(absl::string_view message);

}  // namespace pushpull
