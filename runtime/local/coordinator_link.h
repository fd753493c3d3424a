// SPDX-License-Identifier: Apache-2.0
//
// The launcher's calls to the job's coordinator, across its restarts: when a coordinator dies, its
// successor has the same address, and its status is completed with what the predecessor reported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/local/tensorboard.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"
#include "runtime/status/status_history.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Calls block on a thread of their own, at most 2 s each; results are delivered on the loop.
// Thread-confined to the loop, constructor and destructor included.
class CoordinatorLink {
 public:
  // `loop`, and `tls` and `tensorboard`, which may be null, outlive the link. The history is
  // written to `tensorboard`.
  CoordinatorLink(const std::string& job,
                  const TlsFolder* tls,
                  TensorBoardLog* tensorboard,
                  EventLoop& loop);
  ~CoordinatorLink();

  // Where the newest coordinator listens; nothing before the first OnReady.
  const Endpoint& endpoint() const { return endpoint_; }
  const std::string& address() const { return endpoint_.control; }
  // The newest answer; it covers the whole run, even if coordinators were restarted.
  const JobStatus& status() const { return status_; }
  // Covers the whole run, including restarts of the job.
  const StatusHistory& history() const { return history_; }
  // The coordinator answered the last call and knows the whole job.
  bool is_answering() const { return is_answering_; }
  // The coordinator answered the last call but is still collecting what its predecessor knew.
  bool is_recovering() const { return is_recovering_; }
  Duration SinceLastAnswer() const { return loop_.Now() - answered_at_; }
  // SinceLastAnswer counts from now on.
  void RestartSilence() { answered_at_ = loop_.Now(); }

  void OnReady(const Endpoint& endpoint) {
    endpoint_ = endpoint;
    is_up_ = true;
    RestartSilence();
  }
  // The successor's status will be completed with the newest status of this one.
  void OnCoordinatorEnd() {
    is_up_ = is_answering_ = is_recovering_ = false;
    earlier_ = status_;
  }
  // Call before the whole job restarts.
  void Reset();

  // Updates status(), then calls `then` with false if there was no answer, or one of a coordinator
  // that is still collecting its members' reports.
  void FetchStatus(std::function<void(bool has_answer)> then);
  // Fetches the status every `period` until it is enough or the time is up. One wait at a time.
  struct StatusWait {
    std::function<bool(const JobStatus&)> is_enough;
    Duration period;
    SteadyTime give_up;
    std::function<void()> then;
  };
  void AwaitStatus(StatusWait wait);
  // Saves a checkpoint, while workers continue training at a step that all of them reach.
  // kUnavailable: no answer. kDeadlineExceeded: not within `limit`. kAborted: `is_vain`, which is
  // asked with each status, said so. Others: why it could not be saved.
  void SaveCheckpoint(Duration limit,
                      std::function<bool(const JobStatus&)> is_vain,
                      std::function<void(absl::StatusOr<Step>)> then);
  // Lets the coordinator know of workers without which the job goes on. Whether it has heard of
  // them is in a later status.
  void LeaveOut(std::vector<LeftOutWorker> workers);
  // No callback of a call or wait in progress is called after this.
  void CancelCalls();

 private:
  // Calls `ask` with the coordinator on the calls' thread, then `then` with its answer on the loop.
  template <typename Answer>
  void Call(absl::StatusOr<Answer> (*ask)(const ControlTarget&, Deadline),
            std::function<void(absl::StatusOr<Answer>)> then);
  bool TakeAnswer(absl::StatusOr<JobStatus> answer);
  void TakeStatus(JobStatus answer);

  const std::string job_;
  const TlsFolder* const tls_;
  TensorBoardLog* const tensorboard_;
  EventLoop& loop_;
  Endpoint endpoint_;
  bool is_up_ = false;  // has been ready, and its process has not ended
  bool is_answering_ = false;
  bool is_recovering_ = false;
  SteadyTime answered_at_;
  JobStatus status_;
  StatusHistory history_{StatusHistory::Keeps::kAll};
  std::optional<JobStatus> earlier_;  // the last status of coordinators that have died
  // A coordinator counts seconds from its own start; these convert them to the job's.
  std::optional<SteadyTime> trained_since_;
  Term counting_from_;
  Duration trained_before_{0};
  Executor::TimerId wait_timer_ = 0;
  std::shared_ptr<CoordinatorLink*> self_;  // expired for results of cancelled calls
  EventLoop calls_;                         // last: it posts to the loop
};

}  // namespace pushpull
