// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/mode_switch.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// A worker that has announced its last step is leaving and is not waited for.
bool IsStaying(const View& view, WorkerId worker) {
  const ViewMember* member = view.Find(worker);
  return member != nullptr && !member->end_step;
}

}  // namespace

absl::StatusOr<Consistency> WantedMode(const Consistency& active,
                                       const ModeChange& change,
                                       const ModeRules& rules) {
  Consistency wanted{.mode = change.mode.value_or(active.mode)};
  const bool is_sync = wanted.is_sync();
  const bool is_bounded = wanted.mode == SyncMode::kBounded;
  if (is_bounded) wanted.staleness = change.staleness.value_or(active.staleness);
  if (is_sync) wanted.backup_workers = change.backup_workers.value_or(active.backup_workers);
  if (is_sync) wanted.gated = change.gated.value_or(active.gated);
  const absl::string_view name = NameOf(wanted.mode);
  const bool asks_for_backup = change.backup_workers.value_or(0) > 0;
  std::string problem;  // the first one
  const auto check = [&problem](bool is_right, const auto&... text) {
    if (!is_right && problem.empty()) problem = absl::StrCat("spec.sync.", text...);
  };
  check(IsKnown(wanted.mode), "mode: ", static_cast<int>(wanted.mode), " is not known");
  check(is_bounded || change.staleness.value_or(0) == 0,
        "staleness: needs spec.sync.mode Bounded, which is ",
        name);
  check(is_sync || !rules.is_deterministic,
        "deterministic: needs spec.sync.mode Sync, asked for ",
        name);
  check(
      is_sync || !rules.measures_noise, "noiseScale: needs spec.sync.mode Sync, asked for ", name);
  check(is_sync || !active.is_sync() || !rules.divides_samples,
        "mode: the workers of this job divide the samples of each step of Sync, asked for ",
        name,
        "; resume it from a checkpoint in that mode");
  check(is_sync || !asks_for_backup, "backupWorkers: needs spec.sync.mode Sync, which is ", name);
  check(!asks_for_backup || wanted.backup_workers < rules.workers,
        "backupWorkers: must be less than spec.workers.replicas (",
        rules.workers,
        "), is ",
        wanted.backup_workers);
  check(is_sync || !change.gated.value_or(false),
        "gated: needs spec.sync.mode Sync, which is ",
        name);
  check(!rules.sums_locally || (is_sync && wanted.backup_workers == 0 && !wanted.gated),
        "localReduce: needs spec.sync.mode Sync without backupWorkers and gated, asked for ",
        Describe(wanted));
  check(!wanted.gated || wanted.backup_workers == 0,
        "gated: needs spec.sync.backupWorkers 0, which is ",
        wanted.backup_workers);
  if (!problem.empty()) return absl::InvalidArgumentError(problem);
  return wanted;
}

void ModeSwitch::Begin(SteadyTime now, const Consistency& wanted) {
  phase_ = Phase::kWanted;
  wanted_ = wanted;
  deadline_ = now + patience_;
  problem_.clear();
}

void ModeSwitch::OnHeld(WorkerId worker, const StepsHeld& held) {
  const auto member = members_.find(worker);
  if (held.round != round_ || member == members_.end()) return;
  member->second.next_step = held.next_step;
  member->second.is_drained = held.is_drained;
}

ModeSwitch::Orders ModeSwitch::Advance(SteadyTime now, const View& active, bool may_begin) {
  Orders orders;
  std::erase_if(members_, [&](const auto& member) { return !IsStaying(active, member.first); });
  const auto all = [&](const auto& condition) {
    return absl::c_all_of(members_, [&](const auto& m) { return condition(m.second); });
  };
  if (phase_ == Phase::kWanted && may_begin) Ask(active, orders);
  if (phase_ == Phase::kAsking && all([](const Member& m) { return m.next_step.has_value(); }))
    Drain(orders);
  if (phase_ == Phase::kDraining && all([](const Member& m) { return m.is_drained; })) {
    phase_ = Phase::kAgreeing;
    orders.first_step = first_step_;
    return orders;
  }
  if (phase_ == Phase::kAgreeing && active.consistency != before_) phase_ = Phase::kIdle;
  if (is_under_way() && phase_ != Phase::kAgreeing && now >= deadline_) GiveUp(orders);
  return orders;
}

void ModeSwitch::Ask(const View& active, Orders& orders) {
  phase_ = Phase::kAsking;
  ++round_;
  before_ = active.consistency;
  first_step_ = before_.from_step;
  members_.clear();
  for (const ViewMember& member : active.members) {
    if (member.end_step) continue;
    members_[member.worker] = Member{};
    orders.holds.emplace_back(member.worker, HoldSteps{.round = round_, .until = std::nullopt});
  }
}

// If steps need every worker, all stop before the same one: the others have to complete what some
// have begun. In Async each stops where it is.
void ModeSwitch::Drain(Orders& orders) {
  phase_ = Phase::kDraining;
  for (const auto& [worker, member] : members_)
    first_step_ = std::max(first_step_, *member.next_step);
  for (const auto& [worker, member] : members_) {
    const bool is_alone = before_.mode == SyncMode::kAsync;
    const Step until = is_alone ? *member.next_step : first_step_;
    orders.holds.emplace_back(worker, HoldSteps{.round = round_, .until = until});
  }
}

void ModeSwitch::GiveUp(Orders& orders) {
  problem_ = absl::StrFormat("the mode stays %s: %s after %g s",
                             NameOf(before_.mode),
                             phase_ == Phase::kWanted ? "members were still joining" : Missing(),
                             ToSeconds(patience_));
  for (const auto& [worker, member] : members_)
    orders.resumes.emplace_back(worker, ResumeSteps{.round = round_});
  phase_ = Phase::kIdle;
  members_.clear();
}

std::string ModeSwitch::Missing() const {
  for (const auto& [worker, member] : members_) {
    if (!member.is_drained)
      return absl::StrCat(ToString(worker), " did not come to the end of its step");
  }
  return "no worker is there";
}

}  // namespace pushpull
