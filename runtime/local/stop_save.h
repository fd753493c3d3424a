// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint before an orderly stop of a local job:
//
//   idle --> saving a step that all workers reach --> over     (or over at once: no step was made)
//                  | the step under way does not end
//                  v
//            ending the workers --> saving what they leave --> over
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/local/console.h"
#include "runtime/local/coordinator_link.h"
#include "runtime/local/member_table.h"

namespace pushpull {

inline constexpr char kNothingToSave[] =
    "pushpull: no checkpoint: the job has made no step that is not saved";

// Thread-confined to the loop.
class StopSave {
 public:
  // All are used, not owned, and outlive this object. `stop` is called once, with the exit code.
  StopSave(MemberTable& members,
           CoordinatorLink& coordinator,
           Console& console,
           EventLoop& loop,
           std::function<void(int exit_code)> stop)
      : members_(members),
        coordinator_(coordinator),
        console_(console),
        loop_(loop),
        stop_(std::move(stop)) {}

  // From the start on, also once it is over.
  bool has_begun() const { return exit_code_.has_value(); }
  void Begin(int exit_code);
  // A process has ended.
  void OnEnd();
  // Before the whole job starts again.
  void Reset() {
    exit_code_.reset();
    is_ending_workers_ = false;
  }

 private:
  void Save();
  void EndWorkers();
  void SaveWhatStands();
  void Finish(const absl::StatusOr<Step>& saved);

  MemberTable& members_;
  CoordinatorLink& coordinator_;
  Console& console_;
  EventLoop& loop_;
  const std::function<void(int exit_code)> stop_;
  std::optional<int> exit_code_;
  bool is_ending_workers_ = false;
};

}  // namespace pushpull
