// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/resizer.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

#include "runtime/base/colocated_server.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr uint64_t kBatchMax = std::numeric_limits<int32_t>::max();  // the manifest's

absl::Status CheckReplicas(absl::string_view field, uint32_t desired, uint32_t low, uint32_t high) {
  if (desired >= std::max(low, 1u) && desired <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s.replicas: must be between %d (minReplicas) and %d (maxReplicas), is %d",
                      field,
                      low,
                      high,
                      desired));
}

absl::Status CheckBatch(uint64_t batch) {
  if (batch >= 1 && batch <= kBatchMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "spec.workers.globalBatch: must be between 1 and %d, is %d", kBatchMax, batch));
}

}  // namespace

Resizer::Resizer(const JobCoreOptions& options, const MemberRegistry& members)
    : options_(options),
      members_(members),
      desired_{.revision = 1,
               .servers = options.settings.servers,
               .workers = options.settings.workers,
               .global_batch = options.settings.global_batch},
      log_(options.heartbeat) {}

bool Resizer::IsDesired(ServerId server) const {
  const std::optional<WorkerId> worker = WorkerBeside(server);
  if (!worker) return server.value() < desired_.servers;
  return options_.has_colocated_servers && IsDesired(*worker);
}

bool Resizer::HasDesiredServer() const {
  const auto& servers = members_.servers();
  return absl::c_any_of(servers, [this](const auto& server) { return IsDesired(server.first); });
}

absl::Status Resizer::CheckIndex(ServerId server) const {
  if (IsDesired(server)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("job %s has %d servers%s, there is no place for %s",
                      options_.settings.job,
                      desired_.servers,
                      options_.has_colocated_servers ? " and one beside each of its workers" : "",
                      ToString(server)));
}

absl::Status Resizer::CheckIndex(WorkerId worker) const {
  if (IsDesired(worker)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("job %s has %d workers, there is no place for %s",
                      options_.settings.job,
                      desired_.workers,
                      ToString(worker)));
}

absl::Status Resizer::Check(const JobSize& size) const {
  PUSHPULL_RETURN_IF_ERROR(CheckBatch(size.global_batch.value_or(1)));
  if (size.workers) {
    const uint32_t most = options_.consistency.is_ring()
                              ? std::min<uint32_t>(options_.max_workers, kRingWorkersMax)
                              : options_.max_workers;
    PUSHPULL_RETURN_IF_ERROR(
        CheckReplicas("spec.workers", *size.workers, options_.min_workers, most));
  }
  if (!size.servers) return absl::OkStatus();
  if (options_.consistency.is_ring()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("spec.servers.replicas: job %s has spec.sync.mode AllReduce and no servers",
                        options_.settings.job));
  }
  const uint32_t replication = options_.settings.replication;
  if (*size.servers <= replication && replication > 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("spec.servers.replicas: must be above %d (spec.servers.replication), is %d",
                        replication,
                        *size.servers));
  }
  return CheckReplicas("spec.servers", *size.servers, options_.min_servers, options_.max_servers);
}

void Resizer::ResizeServers(SteadyTime now, uint32_t servers, Step step, ResizeLog::Totals totals) {
  log_.Begin(now, {.step = step, .from = desired_.servers, .to = servers}, std::move(totals));
  desired_.servers = servers;
  ++desired_.revision;
}

std::vector<std::pair<WorkerId, Release>> Resizer::ResizeWorkers(uint32_t workers) {
  std::vector<std::pair<WorkerId, Release>> changed;
  for (const auto& [id, worker] : members_.workers()) {
    const bool was_desired = IsDesired(id);
    const bool is_desired = id.value() < workers;
    if (!worker.is_leaving && was_desired != is_desired)
      changed.emplace_back(id, Release{!is_desired});
  }
  desired_.workers = workers;
  ++desired_.revision;
  return changed;
}

void Resizer::SetGlobalBatch(uint64_t batch) {
  desired_.global_batch = batch;
  ++desired_.revision;
}

void Resizer::Restore(const DesiredSize& reported) {
  if (reported.revision < desired_.revision) return;
  desired_ = reported;
  ++desired_.revision;
}

bool Resizer::RequestDrain(ServerId server) {
  if (IsLeaving(server)) return false;
  leave_turns_[server] = ++last_turn_;
  return true;
}

bool Resizer::AreAllLeaving() const {
  const auto& servers = members_.servers();
  return !servers.empty() &&
         absl::c_all_of(servers, [this](const auto& server) { return IsLeaving(server.first); });
}

void Resizer::OnServerGone(ServerId server) {
  leave_turns_.erase(server);
  released_.erase(server);
}

// The desired servers without those that have asked to leave or have been told to: a released
// server that is desired again takes part with its next process. While all present servers have
// asked to leave, the last one to ask keeps every shard until a replacement registers: the others
// can hand over to it, and be replaced meanwhile.
std::set<ServerId> Resizer::Target() const {
  std::set<ServerId> target;
  for (uint32_t i = 0; i < desired_.servers; ++i) target.insert(ServerId{i});
  for (uint32_t i = 0; options_.has_colocated_servers && i < desired_.workers; ++i)
    target.insert(ServerBeside(WorkerId{i}));
  for (const ServerId server : released_) target.erase(server);
  const bool has_heir = absl::c_any_of(target, [&](ServerId server) {
    return members_.Find(server) != nullptr && !IsLeaving(server);
  });
  if (!has_heir && keeps_places_) return target;
  std::pair<uint64_t, ServerId> last{};  // turn, server
  for (const auto& [server, turn] : leave_turns_) {
    if (target.erase(server) > 0 && !IsReleased(server)) last = std::max(last, {turn, server});
  }
  if (!has_heir && last.first > 0) target.insert(last.second);
  return target;
}

std::optional<std::set<ServerId>> Resizer::TakeTarget(bool is_forced) {
  std::set<ServerId> target = Target();
  if (target == target_ && !is_forced) return std::nullopt;
  target_ = std::move(target);
  return target_;
}

std::vector<ServerId> Resizer::TakeReleased(LeaveRule rule,
                                            absl::FunctionRef<bool(ServerId)> is_drained) {
  std::vector<ServerId> released;
  for (const auto& [id, server] : members_.servers()) {
    if (IsReleased(id)) continue;
    const bool may_leave = IsLeaving(id) && (rule == LeaveRule::kAtOnce ||
                                             (rule == LeaveRule::kDrained && is_drained(id)));
    if (may_leave || (!IsDesired(id) && is_drained(id))) released.push_back(id);
  }
  released_.insert(released.begin(), released.end());
  return released;
}

void Resizer::UpdateLog(SteadyTime now, size_t shards_moving, const ResizeLog::Totals& totals) {
  const auto& servers = members_.servers();
  const bool is_settled =
      shards_moving == 0 && members_.HasFirstServers(desired_.servers) &&
      absl::c_all_of(servers, [this](const auto& server) { return IsDesired(server.first); });
  log_.Update(now, is_settled, totals);
}

}  // namespace pushpull
