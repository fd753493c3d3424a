// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

namespace pushpull {

Recovery::Recovery(const JobCoreOptions& options, const MemberRegistry& members)
    : options_(options), members_(members) {
  if (options_.recovery != JobCoreOptions::Recovery::kNone) collection_.emplace();
}

bool Recovery::IsUnderstood(const FromMember& message) {
  return std::holds_alternative<RegisterServer>(message) ||
         std::holds_alternative<RegisterWorker>(message) ||
         std::holds_alternative<RegisterTensors>(message) ||
         std::holds_alternative<Heartbeat>(message) || std::holds_alternative<Leave>(message) ||
         std::holds_alternative<DrainRequest>(message) ||
         std::holds_alternative<Failure>(message) ||
         std::holds_alternative<ServerReport>(message) ||
         std::holds_alternative<WorkerReport>(message);
}

absl::Status Recovery::CheckTerm(Term promised) {
  highest_term_ = std::max(highest_term_, promised);
  if (highest_term_ <= options_.term) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("this coordinator has term %d, one of term %d has taken over",
                      options_.term.value(),
                      highest_term_.value()));
}

Recovery::Decision Recovery::Advance(SteadyTime now, uint32_t desired_servers) {
  Decision decision = Decide(now, desired_servers);
  if (!std::holds_alternative<Wait>(decision)) collection_.reset();
  return decision;
}

// The order of the checks matters. A job whose values may exist somewhere must never be started
// anew, so concluding that nobody knows anything takes every registered server's report and, if
// state is expected, collect_grace. After that, the more is known, the longer missing members are
// worth waiting for: members that reports name for named_grace, and holders of values that nobody
// else has for loss_grace.
Recovery::Decision Recovery::Decide(SteadyTime now, uint32_t desired_servers) {
  const Duration waited = now - first_registered_at_.value_or(now);
  CollectedJob job = collection_->Decide();
  if (!collection_->has_state()) return DecideWithoutState(waited, desired_servers, std::move(job));
  if (!job.has_begun) {
    if (!members_.HasFirstServers(desired_servers) || waited < options_.collect_grace)
      return Wait{};
    return GoOn{std::move(job)};
  }
  const bool is_complete = IsComplete();
  if (!is_complete && waited < options_.named_grace) return Wait{};
  const std::vector<ShardId> unheld = collection_->Unheld();
  // Once everybody has reported, no further holder can appear: loss recovery starts at once if
  // enabled.
  const bool may_come = !is_complete || !options_.repairs_losses;
  if (!unheld.empty() && may_come && waited < options_.loss_grace) {
    if (std::exchange(has_named_missing_, true)) return Wait{};
    return Wait{absl::StrFormat("waiting up to %g s for the servers that hold shard %d and %d more",
                                ToSeconds(options_.loss_grace),
                                unheld.front().value(),
                                unheld.size() - 1)};
  }
  return GoOn{std::move(job)};
}

// Nobody else can report: if a process that knows nothing of the job has a member's place, the
// process before it is dead.
bool Recovery::IsComplete() const {
  const Collection::Missing missing = collection_->FindMissing();
  const auto is_new_server = [&](ServerId id) {
    const auto* server = members_.Find(id);
    return server != nullptr && server->info.promised == Term{};
  };
  const auto is_new_worker = [&](const ViewMember& member) {
    const auto* worker = members_.Find(member.worker);
    return worker != nullptr && worker->info.incarnation != member.incarnation;
  };
  return absl::c_all_of(missing.servers, is_new_server) &&
         absl::c_all_of(missing.workers, is_new_worker);
}

// No server has values of the job.
Recovery::Decision Recovery::DecideWithoutState(Duration waited,
                                                uint32_t desired_servers,
                                                CollectedJob job) const {
  const bool all_reported = absl::c_all_of(members_.servers(), [&](const auto& server) {
    // A server that no coordinator has welcomed yet is not asked: it has nothing to report.
    return server.second.info.promised == Term{} || collection_->HasSpoken(server.first);
  });
  if (!members_.HasFirstServers(desired_servers) || !all_reported) return Wait{};
  if (options_.consistency.is_ring()) {
    // The workers have all the state, and register as they did at first. Late ones would find that
    // the others have continued without them.
    const uint32_t workers =
        job.desired.revision > 0 ? job.desired.workers : options_.settings.workers;
    const bool are_back = members_.workers().size() >= workers;
    if (!are_back && waited < options_.named_grace) return Wait{};
    return StartNew{};
  }
  const bool may_come = options_.recovery == JobCoreOptions::Recovery::kExpected;
  if (may_come && waited < options_.collect_grace) return Wait{};
  if (job.desired.revision > 0) return GoOn{std::move(job)};
  return StartNew{};
}

}  // namespace pushpull
