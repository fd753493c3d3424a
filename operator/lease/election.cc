// SPDX-License-Identifier: Apache-2.0
#include "operator/lease/election.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pushpull_operator {

using pushpull::SteadyTime;

absl::Status Validate(const LeaseTimes& times) {
  if (times.retry_period.count() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lease: the retry period must be at least 1 s, is ", times.retry_period.count(), " s"));
  }
  // A failed renewal needs time for a second attempt.
  if (times.renew_deadline < 2 * times.retry_period) {
    return absl::InvalidArgumentError(absl::StrCat("lease: the renew deadline of ",
                                                   times.renew_deadline.count(),
                                                   " s must be at least twice the retry period of ",
                                                   times.retry_period.count(),
                                                   " s"));
  }
  // The rest is for writes in flight and for clocks of different rates.
  if (times.lease_duration * 3 < times.renew_deadline * 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease: the lease duration of ",
                     times.lease_duration.count(),
                     " s must be at least a third longer than the renew deadline of ",
                     times.renew_deadline.count(),
                     " s"));
  }
  return absl::OkStatus();
}

void Election::Observe(const std::optional<LeaseRecord>& record, SteadyTime now) {
  if (changed_at_ && record == record_) return;
  was_seen_ = was_seen_ || record_ || record;
  record_ = record;
  changed_at_ = now;
}

SteadyTime Election::LeaseEnds() const {
  // The holder's own duration counts; a record without one, or a deleted one, gets ours.
  const bool has_duration = record_ && record_->duration.count() > 0;
  return *changed_at_ + (has_duration ? record_->duration : times_.lease_duration);
}

Election::Step Election::Next(SteadyTime now) const {
  if (is_over_) return Step::kLost;
  if (has_led_) {
    const bool is_ours = record_.has_value() && record_->holder == identity_;
    return is_ours && IsLeader(now) ? Step::kRenew : Step::kLost;
  }
  if (!record_.has_value()) {
    const bool was_deleted = was_seen_ && changed_at_.has_value();
    return was_deleted && now < LeaseEnds() ? Step::kWait : Step::kCreate;
  }
  // Ours without having led: the response to our write was lost.
  if (record_->holder.empty() || record_->holder == identity_) return Step::kAcquire;
  return now >= LeaseEnds() ? Step::kAcquire : Step::kWait;
}

LeaseRecord Election::RecordToWrite(const std::string& wall_time) const {
  LeaseRecord record{.holder = identity_,
                     .duration = times_.lease_duration,
                     .acquire_time = wall_time,
                     .renew_time = wall_time};
  if (!record_.has_value()) return record;
  const bool is_ours = record_->holder == identity_;
  if (is_ours && has_led_) record.acquire_time = record_->acquire_time;
  record.transitions = record_->transitions + (is_ours ? 0 : 1);
  return record;
}

LeaseRecord Election::RecordToRelease(const std::string& wall_time) const {
  LeaseRecord record = record_.value_or(LeaseRecord{});
  record.holder.clear();
  record.duration = std::chrono::seconds(1);
  record.renew_time = wall_time;
  return record;
}

void Election::OnWritten(const LeaseRecord& record, SteadyTime sent_at, SteadyTime now) {
  record_ = record;
  changed_at_ = now;
  // A lease that was lost meanwhile stays lost.
  if (is_over_ || (has_led_ && now >= leads_until_)) return;
  has_led_ = true;
  leads_until_ = sent_at + times_.renew_deadline;
}

bool Election::IsLeader(SteadyTime now) const {
  return has_led_ && !is_over_ && now < leads_until_;
}

SteadyTime Election::NextCheck(SteadyTime now) const {
  const SteadyTime regular = now + times_.retry_period;
  if (has_led_ || !record_.has_value()) return regular;
  // A failed acquire waits for the retry period.
  const SteadyTime ends = LeaseEnds();
  return ends > now ? std::min(ends, regular) : regular;
}

}  // namespace pushpull_operator
