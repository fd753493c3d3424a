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

// The order of the questions matters. A job whose values may exist somewhere must never be started
// again, so "nobody knows anything" needs every registered server's report, and where state is
// expected also the grace. After that, the more is known, the longer missing members are worth
// waiting for: everybody for collect_grace, and holders of values that nobody else has for
// loss_grace.
Recovery::Decision Recovery::Decide(SteadyTime now, uint32_t desired_servers) {
  const Duration waited = now - first_registered_at_.value_or(now);
  CollectedJob job = collection_->Decide();
  if (!collection_->has_state()) return DecideWithoutState(waited, desired_servers, std::move(job));
  if (!job.has_begun) {
    if (!members_.HasFirstServers(desired_servers) || waited < options_.collect_grace)
      return Wait{};
    return GoOn{std::move(job)};
  }
  if (!collection_->IsComplete() && waited < options_.collect_grace) return Wait{};
  const std::vector<ShardId> unheld = collection_->Unheld();
  // Once everybody has reported, no further holder can appear: repair starts at once where it can.
  const bool may_come = !collection_->IsComplete() || !options_.repairs_losses;
  if (!unheld.empty() && may_come && waited < options_.loss_grace) {
    if (std::exchange(has_named_missing_, true)) return Wait{};
    return Wait{absl::StrFormat("waiting up to %g s for the servers that hold shard %d and %d more",
                                ToSeconds(options_.loss_grace),
                                unheld.front().value(),
                                unheld.size() - 1)};
  }
  return GoOn{std::move(job)};
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
  // The workers of a ring have everything that there is, and register as they did at first. Those
  // that come late would find that the others have gone on without them.
  const bool is_ring = options_.consistency.is_ring();
  const bool may_come = is_ring || options_.recovery == JobCoreOptions::Recovery::kExpected;
  if (may_come && waited < options_.collect_grace) return Wait{};
  if (job.desired.revision > 0 && !is_ring) return GoOn{std::move(job)};
  return StartNew{};
}

}  // namespace pushpull
