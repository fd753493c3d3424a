// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/membership_view.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

bool HasMember(const View& view, const ViewMember& member) {
  const ViewMember* found = view.Find(member.worker);
  return found != nullptr && found->incarnation == member.incarnation;
}

bool ShareAMember(const View& a, const View& b) {
  return absl::c_any_of(a.members, [&](const ViewMember& member) { return HasMember(b, member); });
}

bool Contains(const View& view, WorkerId worker, Incarnation incarnation, Step step) {
  const ViewMember* member = view.Find(worker);
  return member != nullptr && member->incarnation == incarnation && member->ContributesTo(step);
}

}  // namespace

bool MembershipView::IsMember(WorkerId worker, Incarnation incarnation, Step step) const {
  return Contains(active_, worker, incarnation, step) ||
         (proposed_ && Contains(*proposed_, worker, incarnation, step));
}

bool MembershipView::StartsAfter(WorkerId worker, Incarnation incarnation, Step step) const {
  const auto starts_after = [&](const View& view) {
    const ViewMember* member = view.Find(worker);
    return member != nullptr && member->incarnation == incarnation && step < member->from_step;
  };
  return starts_after(active_) || (proposed_ && starts_after(*proposed_));
}

uint64_t MembershipView::GroupOf(WorkerId worker, Incarnation incarnation) const {
  const auto group_in = [&](const View& view) -> uint64_t {
    const ViewMember* member = view.Find(worker);
    return member != nullptr && member->incarnation == incarnation ? member->group : 0;
  };
  const uint64_t group = group_in(active_);
  return group == 0 && proposed_ ? group_in(*proposed_) : group;
}

void MembershipView::ForEachRequired(Step step, absl::FunctionRef<void(WorkerId)> visit) const {
  for (const View* view : {&active_, proposed_ ? &*proposed_ : nullptr}) {
    if (view == nullptr) return;
    for (const ViewMember& member : view->members)
      if (member.ContributesTo(step)) visit(member.worker);
  }
}

bool MembershipView::IsQuorum(Step step, uint32_t desired, size_t asked, bool has_samples) const {
  const auto members = static_cast<size_t>(absl::c_count_if(
      active_.members, [&](const ViewMember& member) { return member.ContributesTo(step); }));
  const uint32_t spare = active_.consistency.backup_workers;
  const size_t needed = desired > spare ? desired - spare : 1;
  const size_t quorum = std::max<size_t>(1, std::min(members, needed));
  return asked >= (has_samples ? quorum : std::max(quorum, members));
}

bool MembershipView::IsOfNextMode(Step step) const {
  return proposed_ && proposed_->consistency != active_.consistency &&
         step >= proposed_->consistency.from_step;
}

bool MembershipView::Propose(const View& view, Step lowest_free_step) {
  const uint64_t newest = std::max(active_.number, proposed_ ? proposed_->number : 0);
  if (view.number <= newest) return false;
  const bool changes_mode = active_.number > 0 && view.consistency != active_.consistency;
  if (changes_mode && view.consistency.from_step < lowest_free_step) return false;
  const bool is_bound = ShareAMember(active_, view) || !view.consistency.is_sync();
  for (const ViewMember& member : view.members) {
    const bool joins = !HasMember(active_, member);
    if (joins && is_bound && member.from_step < lowest_free_step) return false;
  }
  proposed_ = view;
  return true;
}

bool MembershipView::Activate(const View& view) {
  if (view.number <= active_.number) return false;
  const bool all_gone = !active_.members.empty() && !ShareAMember(active_, view);
  active_ = view;
  if (proposed_ && proposed_->number <= view.number) proposed_.reset();
  return all_gone;
}

}  // namespace pushpull
