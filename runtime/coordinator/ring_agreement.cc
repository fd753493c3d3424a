// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/ring_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

ViewChange RingAgreement::Join(const std::map<WorkerId, Incarnation>& joiners) {
  bool has_changed = false;
  for (const auto& [worker, incarnation] : joiners) {
    const auto known = members_.find(worker);
    if (known != members_.end() && known->second.incarnation == incarnation) continue;
    members_[worker] = Member{.incarnation = incarnation};
    has_changed = true;
  }
  if (has_changed) Renew();
  return std::exchange(change_, {});
}

ViewChange RingAgreement::Leave(WorkerId worker, Step end_step, bool is_released) {
  const auto member = members_.find(worker);
  if (member == members_.end()) return {};
  member->second.end_step = end_step;
  member->second.is_released = is_released;
  Renew();
  return std::exchange(change_, {});
}

ViewChange RingAgreement::Remove(WorkerId worker) {
  if (members_.erase(worker) == 0) return {};
  Renew();
  return std::exchange(change_, {});
}

ViewChange RingAgreement::Regroup() {
  if (phase_ == Phase::kForming || phase_ == Phase::kRunning) Renew();
  return std::exchange(change_, {});
}

// Asks every worker again: one that answered under an earlier epoch may have taken a step since
// then.
void RingAgreement::Renew() {
  ++epoch_.counter;
  phase_ = Phase::kStopping;
  for (auto& [worker, member] : members_) {
    member.stopped.reset();
    member.is_formed = false;
    change_.stopped.push_back(worker);
  }
  change_.stop = StopRing{epoch_};
  ConcludeIfStopped();
}

ViewChange RingAgreement::OnStopped(WorkerId worker, const RingStopped& message) {
  const auto member = members_.find(worker);
  if (member == members_.end() || message.epoch != epoch_ || phase_ != Phase::kStopping) return {};
  member->second.stopped = message;
  ConcludeIfStopped();
  return std::exchange(change_, {});
}

std::optional<RingMark> RingAgreement::HighestMark() const {
  std::optional<RingMark> highest;
  for (const auto& [worker, member] : members_) highest = std::max(highest, member.stopped->mark);
  return highest;
}

void RingAgreement::ConcludeIfStopped() {
  const bool all_stopped =
      absl::c_all_of(members_, [](const auto& entry) { return entry.second.stopped.has_value(); });
  if (!all_stopped) return;
  const std::optional<RingMark> highest = HighestMark();
  DropLeavers(highest);
  if (!members_.empty()) return Form(highest);
  phase_ = Phase::kIdle;
  Activate(Step{});
}

// Drops the leaving workers that nobody needs any more. If only leaving ones have the newest
// values, one of them takes part in one more ring, which ends when the others have them.
void RingAgreement::DropLeavers(const std::optional<RingMark>& highest) {
  const auto has_newest = [&](const Member& member) { return member.stopped->mark == highest; };
  const bool somebody_stays =
      absl::c_any_of(members_, [](const auto& entry) { return !entry.second.end_step; });
  bool is_kept = !somebody_stays || absl::c_any_of(members_, [&](const auto& entry) {
    return !entry.second.end_step && has_newest(entry.second);
  });
  std::erase_if(members_, [&](const auto& entry) {
    if (!entry.second.end_step) return false;
    const bool is_source = !is_kept && has_newest(entry.second);
    is_kept = is_kept || is_source;
    return !is_source;
  });
}

void RingAgreement::Form(const std::optional<RingMark>& highest) {
  if (has_begun_ && !highest) {
    change_.problem =
        absl::StrCat("every worker that had the job's values is lost: training begins again with ",
                     saved_.folder.empty() || saved_.values_only
                         ? "step 0"
                         : absl::StrCat("the checkpoint of step ", saved_.step.value()));
  }
  FormRing form{.epoch = epoch_,
                .token = {secret_, epoch_.counter},
                .mark = highest.value_or(RingMark{.step = saved_.step}),
                .is_fresh = !highest};
  if (form.is_fresh) {
    form.restore_from = saved_.folder;
    form.values_only = saved_.values_only;
  }
  std::optional<uint32_t> source;
  for (const auto& [worker, member] : members_) {
    const bool has_newest = member.stopped->mark == highest;
    if (has_newest && !source) source = static_cast<uint32_t>(form.workers.size());
    form.copies = form.copies || !has_newest;
    form.workers.push_back({.worker = worker, .address = ""});
  }
  form.source = source.value_or(0);
  form.copies = form.copies || (form.is_fresh && form.workers.size() > 1);
  if (form.mark > last_mark_ || !has_begun_) failures_ = 0;
  last_mark_ = form.mark;
  has_begun_ = true;
  phase_ = Phase::kForming;
  Activate(form.mark.step);
  change_.form = std::move(form);
}

// New members contribute from `first_step` on.
void RingAgreement::Activate(Step first_step) {
  std::vector<ViewMember> next;
  for (const auto& [worker, member] : members_) {
    const ViewMember* known = active_.Find(worker);
    if (known != nullptr && known->incarnation == member.incarnation) {
      next.push_back(*known);
      continue;
    }
    next.push_back({.worker = worker, .incarnation = member.incarnation, .from_step = first_step});
    change_.admitted.push_back(next.back());
  }
  if (next == active_.members) return;
  active_.members = std::move(next);
  ++active_.number;
  change_.activate = active_;
}

ViewChange RingAgreement::OnNews(WorkerId worker, const RingNews& message) {
  const auto member = members_.find(worker);
  const bool is_formed = phase_ == Phase::kForming || phase_ == Phase::kRunning;
  if (member == members_.end() || message.epoch != epoch_ || !is_formed) return {};
  if (!message.status.ok()) {
    const std::string what = absl::StrCat(ToString(worker), ": ", message.status.message());
    if (++failures_ >= kFailuresMax) {
      change_.failure = absl::StrCat(
          "workers have failed ", failures_, " times to sum one step's gradients, last ", what);
    } else {
      change_.problem = absl::StrCat("the workers connect anew and repeat their step: ", what);
      Renew();
    }
    return std::exchange(change_, {});
  }
  member->second.is_formed = true;
  const bool all_formed =
      absl::c_all_of(members_, [](const auto& entry) { return entry.second.is_formed; });
  if (!all_formed) return {};
  phase_ = Phase::kRunning;
  const bool somebody_leaves =
      absl::c_any_of(members_, [](const auto& entry) { return entry.second.end_step.has_value(); });
  if (somebody_leaves) Renew();
  return std::exchange(change_, {});
}

}  // namespace pushpull
