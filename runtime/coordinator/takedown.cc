// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/takedown.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/checkpoint/tensor_roles.h"

namespace pushpull {
namespace {

constexpr char kStateIsLost[] =
    "every worker has ended, and what only their programs knew of the last step is lost with them";

}  // namespace

void Takedown::Begin() {
  has_begun_ = true;
  members_.SetEnding();
}

Takedown::Standstill Takedown::standstill() const {
  const Contributors& contributors = members_.contributors();
  const bool has_steps =
      absl::c_any_of(contributors.active().members,
                     [](const ViewMember& member) { return !member.end_step.has_value(); });
  const bool is_known = contributors.has_started() && !members_.is_recovering();
  if (!is_known || has_steps || job_.options.consistency.is_ring()) return Standstill::kNone;
  const bool lacks_state =
      members_.was_last_lost() && HoldProgramState(members_.shards().catalog().Specs());
  return lacks_state ? Standstill::kBroken : Standstill::kWhole;
}

void Takedown::Settle() {
  const Standstill now = standstill();
  saver_.SetStanding(now == Standstill::kWhole);
  if (!job_.lifecycle.is_running() || !(has_begun_ || IsOfWholeJob())) return;
  if (now == Standstill::kWhole) saver_.SaveLast();
  if (now == Standstill::kBroken && has_begun_) saver_.Abandon(kStateIsLost);
}

void Takedown::OnTick() {
  if (!job_.options.checkpoint || !job_.lifecycle.is_running()) return;
  SaveBeforeServersLeave();
  DropStalled();
}

// The last values may go with the servers, however long the workers go on.
void Takedown::SaveBeforeServersLeave() {
  if (!members_.resizer().AreAllLeaving() || standstill() != Standstill::kNone) {
    has_saved_for_servers_ = false;
    return;
  }
  const bool all_end =
      absl::c_all_of(members_.contributors().active().members, [this](const ViewMember& member) {
        return member.end_step || job_.statistics.IsEnding(member.worker);
      });
  if (!all_end && !std::exchange(has_saved_for_servers_, true)) saver_.Request().IgnoreError();
}

// The others end their step, which is then saved: there is no time to wait for those that hang.
void Takedown::DropStalled() {
  if (!has_begun_ || !IsOfWholeJob()) return;
  const std::optional<Stall> stall = job_.stalls.Current(job_.now);
  if (!stall) return;
  for (const WorkerId worker : stall->missing) {
    if (const auto* member = job_.members.Find(worker))
      members_.Drop(member->session, "all members end, and the step under way waits for it");
  }
}

absl::Status Takedown::CheckHasValues() const {
  const std::string& job = job_.options.settings.job;
  if (standstill() == Standstill::kBroken)
    return absl::FailedPreconditionError(absl::StrCat("job ", job, ": ", kStateIsLost));
  const bool has_worker = !members_.contributors().active().members.empty();
  if (has_worker || !job_.options.consistency.is_ring()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job, ": no worker is there, and nobody else has values to save"));
}

Announce Takedown::Describe() const {
  return saver_.DescribeLast(standstill() == Standstill::kBroken ? kStateIsLost : "");
}

}  // namespace pushpull
