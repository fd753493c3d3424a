// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/view_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

// Steps between the highest that a server has reached and a joiner's first one, doubled after each
// rejection: a proposal takes a round trip, during which fast steps proceed.
constexpr uint64_t kMarginMax = 1024;

void InsertInOrder(View& view, const ViewMember& member) {
  const auto place =
      absl::c_lower_bound(view.members, member, [](const ViewMember& a, const ViewMember& b) {
        return a.worker < b.worker;
      });
  view.members.insert(place, member);
}

}  // namespace

ViewAgreement ViewAgreement::FromCollected(std::set<ServerId> servers,
                                           View active,
                                           uint64_t last_number,
                                           std::set<WorkerId> established) {
  ViewAgreement agreement(std::move(servers));
  agreement.last_number_ = std::max(last_number, active.number);
  agreement.active_ = std::move(active);
  agreement.established_ = std::move(established);
  return agreement;
}

ViewChange ViewAgreement::Renew(uint64_t seen) {
  last_number_ = std::max(last_number_, seen);
  Activate();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::SetGroups(const std::map<WorkerId, uint64_t>& groups) {
  for (const auto& [worker, group] : groups) groups_[worker] = group;
  bool has_changed = false;
  for (ViewMember& member : active_.members) {
    const auto group = groups.find(member.worker);
    if (group == groups.end() || member.group == group->second) continue;
    member.group = group->second;
    has_changed = true;
  }
  if (has_changed) Activate();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::Join(const std::map<WorkerId, Incarnation>& joiners) {
  for (const auto& [worker, incarnation] : joiners) joiners_[worker] = incarnation;
  if (!joiners_.empty() && !proposal_) Propose();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::Leave(WorkerId worker, Step end_step, bool is_released) {
  const auto member =
      absl::c_find_if(active_.members, [&](const ViewMember& m) { return m.worker == worker; });
  if (member == active_.members.end()) return {};
  member->end_step = end_step;
  member->is_released = is_released;
  RescueStranded();
  Activate();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::Remove(WorkerId worker) {
  joiners_.erase(worker);
  established_.erase(worker);
  const auto erased =
      std::erase_if(active_.members, [&](const ViewMember& m) { return m.worker == worker; });
  const bool was_proposed = proposal_ && proposal_->view.Find(worker) != nullptr;
  if (erased == 0 && !was_proposed) return {};
  RescueStranded();
  Activate();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::ChangeMode(const Consistency& wanted, Step first_step) {
  next_mode_ = wanted;
  next_mode_->from_step = first_step;
  next_mode_->steps_skipped = active_.consistency.steps_skipped;
  Propose();
  return std::exchange(change_, {});
}

// Versions that servers have already reached cannot be reused as the new mode's steps, so their
// numbers are skipped.
void ViewAgreement::RaiseMode(Step lowest_free) {
  if (!next_mode_ || lowest_free <= next_mode_->from_step) return;
  next_mode_->steps_skipped += lowest_free.value() - next_mode_->from_step.value();
  next_mode_->from_step = lowest_free;
}

ViewChange ViewAgreement::Answer(ServerId server, const ViewAnswer& answer) {
  if (!proposal_ || proposal_->view.number != answer.number) return {};
  proposal_->answers[server] = answer;
  ConcludeIfAnswered();
  return std::exchange(change_, {});
}

ViewChange ViewAgreement::SetServers(std::set<ServerId> servers) {
  servers_ = std::move(servers);
  if (!proposal_) return {};
  std::erase_if(proposal_->answers,
                [&](const auto& answer) { return !servers_.contains(answer.first); });
  ConcludeIfAnswered();
  return std::exchange(change_, {});
}

void ViewAgreement::ConcludeIfAnswered() {
  if (servers_.empty() || proposal_->answers.size() < servers_.size()) return;
  bool all_accept = true;
  Step highest;
  for (const auto& [who, word] : proposal_->answers) {
    all_accept = all_accept && word.is_accepted;
    highest = std::max(highest, word.lowest_free_step);
  }
  if (!all_accept) {
    const uint64_t doubled =
        std::min(kMarginMax, uint64_t{1} << std::min<uint64_t>(refusals_++, 10));
    // Without members, no step proceeds meanwhile.
    const uint64_t margin = active_.members.empty() ? 0 : doubled;
    first_step_ = Step{highest.value() + margin};
    RaiseMode(highest);
    Propose();
    return;
  }
  refusals_ = 0;
  for (const ViewMember& member : proposal_->view.members) {
    const auto joiner = joiners_.find(member.worker);
    if (joiner == joiners_.end() || joiner->second != member.incarnation) continue;
    change_.admitted.push_back(member);
    joiners_.erase(joiner);
  }
  active_ = proposal_->view;
  proposal_.reset();
  if (next_mode_ && active_.consistency == *next_mode_) {
    next_mode_.reset();
    for (const ViewMember& member : active_.members) established_.insert(member.worker);
  }
  change_.activate = active_;
  if (!joiners_.empty()) Propose();
}

void ViewAgreement::OnProgress(WorkerId worker, Step step) {
  const ViewMember* member = active_.Find(worker);
  if (member != nullptr && step >= member->from_step) established_.insert(worker);
}

View ViewAgreement::NextView() const {
  View view = active_;
  if (next_mode_) {
    view.consistency = *next_mode_;
    for (ViewMember& member : view.members) member.from_step = next_mode_->from_step;
  }
  const bool somebody_stays =
      absl::c_any_of(view.members, [](const ViewMember& m) { return !m.end_step.has_value(); });
  // In the other modes, step numbers tell which pushes have been applied, so a joiner must not
  // reuse those of completed steps.
  const bool is_bound = somebody_stays || !view.consistency.is_sync();
  for (const auto& [worker, incarnation] : joiners_) {
    const auto group = groups_.find(worker);
    InsertInOrder(view,
                  {.worker = worker,
                   .incarnation = incarnation,
                   .from_step = is_bound ? first_step_ : Step{0},
                   .end_step = std::nullopt,
                   .group = group == groups_.end() ? 0 : group->second});
  }
  return view;
}

void ViewAgreement::Propose() {
  View view = NextView();
  // Members that have left cannot be overtaken. Without them servers recognise a full restart.
  const bool is_restart =
      view.consistency.is_sync() && absl::c_none_of(view.members, [&](const ViewMember& m) {
        return !m.end_step.has_value() && !joiners_.contains(m.worker);
      });
  if (is_restart) {
    std::erase_if(view.members, [](const ViewMember& m) { return m.end_step.has_value(); });
  }
  view.number = ++last_number_;
  proposal_ = Proposal{.view = view, .answers = {}};
  change_.propose = std::move(view);
}

void ViewAgreement::Activate() {
  active_.number = ++last_number_;
  change_.activate = active_;
  // The proposal under way was based on the old view. Servers drop it when they see the higher
  // number, so it is rebuilt from this view.
  if (proposal_) {
    proposal_.reset();
    if (!joiners_.empty() || next_mode_) Propose();
  }
}

// A joiner waits for its first step's version, which only established members can produce. If all
// of them leave or die first, it would wait forever, so it starts from the current version instead.
void ViewAgreement::RescueStranded() {
  if (!active_.consistency.is_sync()) return;
  const auto brings_to = [&](const ViewMember& other, Step step) {
    if (!established_.contains(other.worker) && other.from_step > Step{0}) return false;
    return !other.end_step || *other.end_step >= step;
  };
  for (ViewMember& member : active_.members) {
    if (member.from_step == Step{0} || established_.contains(member.worker)) continue;
    const bool has_help = absl::c_any_of(active_.members, [&](const ViewMember& other) {
      return other.worker != member.worker && brings_to(other, member.from_step);
    });
    if (!has_help) member.from_step = Step{0};
  }
}

}  // namespace pushpull
