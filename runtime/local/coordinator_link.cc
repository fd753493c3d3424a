// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/coordinator_link.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "runtime/base/time_source.h"
#include "runtime/local/status_rules.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(2);
constexpr Duration kSavePeriod = std::chrono::milliseconds(50);

}  // namespace

CoordinatorLink::CoordinatorLink(const std::string& job,
                                 const TlsFolder* tls,
                                 TensorBoardLog* tensorboard,
                                 EventLoop& loop)
    : job_(job),
      tls_(tls),
      tensorboard_(tensorboard),
      loop_(loop),
      answered_at_(loop.Now()),
      self_(std::make_shared<CoordinatorLink*>(this)),
      calls_("pp-status") {
  status_.job = job_;
}

CoordinatorLink::~CoordinatorLink() {
  CancelCalls();
  if (tensorboard_ != nullptr) tensorboard_->Add(history_, true);
}

void CoordinatorLink::Reset() {
  endpoint_ = {};
  is_up_ = is_answering_ = is_recovering_ = false;
  status_ = {};
  status_.job = job_;
  earlier_.reset();
  trained_since_.reset();
}

void CoordinatorLink::CancelCalls() {
  self_ = std::make_shared<CoordinatorLink*>(this);
  loop_.Cancel(wait_timer_);
}

template <typename Answer>
void CoordinatorLink::Call(absl::StatusOr<Answer> (*ask)(const ControlTarget&, Deadline),
                           std::function<void(absl::StatusOr<Answer>)> then) {
  const ControlTarget target{.address = address(), .tls = CurrentIdentity(tls_)};
  calls_.Post([ask, target, then, self = std::weak_ptr<CoordinatorLink*>(self_), &loop = loop_] {
    loop.Post([self, then, answer = ask(target, Deadline::After(kAnswerTimeout))]() mutable {
      if (!self.expired()) then(std::move(answer));
    });
  });
}

void CoordinatorLink::FetchStatus(std::function<void(bool)> then) {
  Call<JobStatus>(pushpull::FetchStatus, [this, then](absl::StatusOr<JobStatus> answer) {
    then(TakeAnswer(std::move(answer)));
  });
}

bool CoordinatorLink::TakeAnswer(absl::StatusOr<JobStatus> answer) {
  if (answer.ok()) RestartSilence();
  const bool has_answer = answer.ok() && answer->phase != JobPhase::kRecovering;
  is_answering_ = has_answer && is_up_;
  is_recovering_ = answer.ok() && !has_answer && is_up_;
  // A recovering coordinator waits for all servers of the last resize, which may not be known here.
  if (is_recovering_)
    status_.desired_servers = std::max(status_.desired_servers, answer->desired_servers);
  if (!has_answer) return false;
  TakeStatus(*std::move(answer));
  history_.Add(UnixSeconds(), std::make_shared<const JobStatus>(status_));
  if (tensorboard_ != nullptr) tensorboard_->Add(history_, false);
  return true;
}

void CoordinatorLink::TakeStatus(JobStatus answer) {
  if (!trained_since_ && answer.phase != JobPhase::kStarting)
    trained_since_ = loop_.Now() - FromSeconds(answer.seconds);
  status_ = earlier_ ? WithEarlier(*earlier_, std::move(answer)) : std::move(answer);
  if (!earlier_) return;
  // A successor's seconds begin at 0 again: the time trained before its first answer is added.
  if (trained_since_ && std::exchange(counting_from_, status_.term) != status_.term)
    trained_before_ = loop_.Now() - *trained_since_ - FromSeconds(status_.seconds);
  status_.seconds += ToSeconds(trained_before_);
}

void CoordinatorLink::LeaveOut(std::vector<LeftOutWorker> workers) {
  if (workers.empty()) return;
  const ControlTarget target{.address = address(), .tls = CurrentIdentity(tls_)};
  calls_.Post([target, size = JobSize{.left_out = std::move(workers)}] {
    RequestResize(target, size, Deadline::After(kAnswerTimeout)).IgnoreError();
  });
}

void CoordinatorLink::AwaitStatus(StatusWait wait) {
  FetchStatus([this, wait = std::move(wait)](bool /*has_answer*/) {
    if (wait.is_enough(status_) || loop_.Now() >= wait.give_up) return wait.then();
    wait_timer_ = loop_.RunAfter(wait.period, [this, wait] { AwaitStatus(wait); });
  });
}

void CoordinatorLink::SaveCheckpoint(Duration limit,
                                     std::function<bool(const JobStatus&)> is_vain,
                                     std::function<void(absl::StatusOr<Step>)> then) {
  Call<uint64_t>(
      RequestCheckpoint, [this, limit, is_vain, then](absl::StatusOr<uint64_t> requested) {
        if (!requested.ok()) return then(requested.status());
        const auto is_over = [number = *requested](const JobStatus& status) {
          return status.checkpoint.finished >= number || status.phase == JobPhase::kFailed;
        };
        AwaitStatus(
            {.is_enough = [=](const auto& status) { return is_over(status) || is_vain(status); },
             .period = kSavePeriod,
             .give_up = loop_.Now() + limit,
             .then =
                 [this, number = *requested, is_over, is_vain, then] {
                   const CheckpointStatus& saved = status_.checkpoint;
                   if (saved.succeeded >= number) return then(saved.step);
                   if (is_over(status_)) return then(absl::InternalError(saved.failure));
                   then(is_vain(status_) ? absl::AbortedError("the step under way does not end")
                                         : absl::DeadlineExceededError("it was not saved in time"));
                 }});
      });
}

}  // namespace pushpull
