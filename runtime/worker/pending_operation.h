// SPDX-License-Identifier: Apache-2.0
//
// Something a worker's program waits for: a push, a pull, joining, leaving.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "runtime/worker/awaited_workers.h"

namespace pushpull {

// Done when all expected parts are done, or when it fails. Thread-safe.
class PendingOperation {
 public:
  static constexpr Duration kNeedLimit = std::chrono::seconds(60);

  using DoneHandler = std::function<void(const absl::Status&)>;

  // `what` begins every error text, e.g. "push_pull of tensor "w" step 3". `on_done`, if any, is
  // called once, without a lock held, by the thread that finishes or fails the operation.
  explicit PendingOperation(std::string what, DoneHandler on_done = nullptr)
      : subject_(std::make_shared<const std::string>(std::move(what))),
        on_done_(std::move(on_done)) {}
  // A request on a tensor; its text is composed only on demand.
  PendingOperation(FrameType type,
                   std::shared_ptr<const std::string> tensor,
                   Step step,
                   DoneHandler on_done = nullptr)
      : subject_(std::move(tensor)), type_(type), step_(step), on_done_(std::move(on_done)) {}

  // Adds `parts` expected answers from `server`. Before the first PartDone.
  void Expect(ServerId server, size_t parts) ABSL_LOCKS_EXCLUDED(mu_);
  void PartDone(ServerId server) ABSL_LOCKS_EXCLUDED(mu_);
  // For operations without parts.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_) { End(absl::OkStatus()); }
  // Sets the location of the value's piece at `offset`, in bytes. Before the PartDone of that
  // piece.
  void SetPiece(uint64_t offset, Payload piece) ABSL_LOCKS_EXCLUDED(mu_);
  // All pieces, in order.
  std::vector<std::span<const float>> Pieces() const ABSL_LOCKS_EXCLUDED(mu_);
  // For a pull of the optimizer's state: the number of updates that one of its chunks has.
  void SetUpdates(uint64_t updates) ABSL_LOCKS_EXCLUDED(mu_);
  // The highest of them.
  uint64_t updates() const ABSL_LOCKS_EXCLUDED(mu_);
  // For a push: whether there was a gradient in the step of one of its chunks. Before the PartDone
  // of that chunk.
  void NoteGradient(bool has_gradient) ABSL_LOCKS_EXCLUDED(mu_);
  // In any of them; true if nothing was noted.
  bool has_gradient() const ABSL_LOCKS_EXCLUDED(mu_);
  // Only the first failure counts, and only before the operation is done.
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // What the operation waits for besides servers, for Wait's error; empty: nothing.
  void SetNote(std::string note) ABSL_LOCKS_EXCLUDED(mu_);
  // What the program itself has to do first; empty: nothing. No wait for it lasts longer than
  // kNeedLimit: no other process could end it.
  void SetNeed(std::string need, SteadyTime since = std::chrono::steady_clock::now())
      ABSL_LOCKS_EXCLUDED(mu_);
  // Knows the workers that the operation waits for. Before the first Wait.
  void SetAwaited(std::shared_ptr<const AwaitedWorkers> awaited) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    awaited_ = std::move(awaited);
  }

  bool is_done() const ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until the operation is done or `deadline` passes. Errors begin with what().
  // kDeadlineExceeded: still under way; names the workers that it waits for, or the servers that
  // have not answered. kFailedPrecondition: the program has not done what is needed first.
  absl::Status Wait(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);

  std::string what() const;
  // The servers that have not answered everything, e.g. "server-1, server-3".
  std::string MissingServers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Missing = std::pair<ServerId, size_t>;

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // The error of a Wait that has lasted too long.
  absl::Status Overdue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsNeedOverdue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !need_.empty() && Deadline(need_until_).has_passed();
  }
  std::string MissingServersLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const std::string> subject_;  // a tensor's name if type_ is set
  const std::optional<FrameType> type_;
  const Step step_;
  const DoneHandler on_done_;
  mutable Mutex mu_;
  CondVar changed_;
  bool is_done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::string note_ ABSL_GUARDED_BY(mu_);
  std::string need_ ABSL_GUARDED_BY(mu_);
  SteadyTime need_until_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const AwaitedWorkers> awaited_ ABSL_GUARDED_BY(mu_);
  // Missing parts by server, in order; no zeros.
  absl::InlinedVector<Missing, 2> missing_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Payload> pieces_ ABSL_GUARDED_BY(mu_);
  uint64_t updates_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<bool> has_gradient_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
