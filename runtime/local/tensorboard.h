// SPDX-License-Identifier: Apache-2.0
//
// `pushpull run --tensorboard`: the job's loss, rates and synchronization time as scalars of
// TensorBoard, while the job runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/local/event_file.h"
#include "runtime/status/status_history.h"

namespace pushpull {

struct ScalarsOfStep {
  double time = 0;  // seconds since 1970
  uint64_t step = 0;
  std::vector<Scalar> scalars;
};

// What has been written of a history.
struct WrittenScalars {
  double points_until = 0;    // the time of the last point
  uint64_t losses_until = 0;  // the step after that of the last loss
};

// What is new in a history: rates of each interval, and the losses of steps that all workers have
// reported by now; `is_last`: of all steps. Pure.
std::vector<ScalarsOfStep> NewScalars(const StatusHistory& history,
                                      bool is_last,
                                      WrittenScalars& written);

// Thread-compatible.
class TensorBoardLog {
 public:
  // As EventFile::Create.
  static absl::StatusOr<TensorBoardLog> Open(const std::string& folder, double time);

  // Writes what is new. A full disk must not end the job: after an error, which is printed, nothing
  // more is written.
  void Add(const StatusHistory& history, bool is_last);

 private:
  explicit TensorBoardLog(EventFile file) : file_(std::move(file)) {}

  std::optional<EventFile> file_;
  WrittenScalars written_;
};

}  // namespace pushpull
