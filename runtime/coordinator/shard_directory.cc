// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/shard_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/colocated_server.h"
#include "runtime/base/status_macros.h"
#include "runtime/shard/placement.h"

namespace pushpull {
namespace {

constexpr uint32_t kExitUsage = 2;         // the checkpoint is of another model
constexpr uint32_t kExitNotReachable = 3;  // it is damaged or cannot be read

}  // namespace

ShardDirectory::ShardDirectory(const JobCoreOptions& options,
                               const MemberRegistry& members,
                               Outbox& outbox)
    : options_(options),
      members_(members),
      outbox_(outbox),
      replicas_({.term = options.term,
                 .replication = options.settings.replication,
                 .rebuilds = options.repairs_losses}),
      losses_(options, replicas_, outbox),
      restorer_(options.restore) {}

std::optional<JobFailure> ShardDirectory::Prepare() {
  std::vector<ServerId> ids;
  std::vector<double> weights;
  for (const auto& [id, server] : members_.servers()) {
    ids.push_back(id);
    weights.push_back(server.info.weight);
    AddServer(server.info);
  }
  // Placement counts servers from 0 on; those beside workers have other indices.
  absl::StatusOr<std::vector<ServerId>> places = AssignShards(weights);
  if (!places.ok()) {
    return JobFailure{.text = absl::StrCat("placing shards: ", places.status().message()),
                      .is_final = false};
  }
  primaries_.clear();
  for (const ServerId place : *places) primaries_.push_back(ids[place.value()]);
  catalog_.SetServers(*std::move(places), std::move(weights));
  is_prepared_ = true;
  return std::nullopt;
}

absl::Status ShardDirectory::Register(WorkerId worker,
                                      std::span<const TensorSpec> tensors,
                                      const CodecRules& rules) {
  PUSHPULL_RETURN_IF_ERROR(CheckCodecs(tensors, rules));
  return catalog_.Register(worker, tensors);
}

std::optional<JobFailure> ShardDirectory::Place() {
  if (options_.restore) {
    const absl::Status fits = restorer_.Check(catalog_.Specs());
    if (!fits.ok()) return JobFailure{std::string(fits.message()), kExitUsage};
  }
  outbox_.SendToServers(InstallTensors{catalog_.version(), catalog_.tensors()});
  std::vector<ReplicaAgreement::FirstEntry> entries;
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const uint64_t bytes = catalog_.shard_bytes()[shard];
    if (bytes > 0) entries.push_back({ShardId{shard}, bytes, primaries_[shard]});
  }
  ReplicaChange first = replicas_.Place(entries);
  if (!options_.restore) {
    Apply(first, true);
    return std::nullopt;
  }
  outbox_.Log(absl::StrCat("restoring step ",
                           options_.restore->manifest.step.value(),
                           " from ",
                           options_.restore->folder));
  auto orders =
      restorer_.Begin(std::move(first), members_.ServerIds(), options_.consistency.is_sync());
  for (auto& [server, order] : orders) outbox_.Send(server, std::move(order));
  return std::nullopt;
}

std::optional<JobFailure> ShardDirectory::OnRestored(ServerId server, const Restored& message) {
  if (!is_restoring()) return std::nullopt;
  if (!message.status.ok()) {
    return JobFailure{
        absl::StrCat(
            ToString(server), " cannot restore the checkpoint: ", message.status.message()),
        kExitNotReachable};
  }
  restorer_.OnRestored(server);
  if (const std::optional<ReplicaChange> first = restorer_.Finish(members_.servers().size()))
    Apply(*first, true);
  return std::nullopt;
}

// ---- a new coordinator ----

std::optional<JobFailure> ShardDirectory::RecoverTensors(const CollectedJob& job) {
  absl::StatusOr<TensorCatalog> catalog = TensorCatalog::FromPlaced(job.tensors);
  if (!catalog.ok())
    return JobFailure{.text = std::string(catalog.status().message()), .is_final = false};
  if (job.has_begun && job.tensors.empty())
    return JobFailure{.text = "no server is left that knows the job's tensors", .is_final = false};
  catalog_ = *std::move(catalog);
  return std::nullopt;
}

void ShardDirectory::RecoverServers(const std::set<ServerId>& target) {
  for (const auto& [id, server] : members_.servers()) {
    if (server.table_version < catalog_.version())
      outbox_.Send(id, InstallTensors{catalog_.version(), catalog_.tensors()});
    AddServer(server.info);  // nothing follows before there are entries
  }
  SetTarget(target);
  is_prepared_ = true;
}

void ShardDirectory::RecoverEntries(const std::map<ShardId, ReplicaSet>& newest) {
  std::vector<ReplicaAgreement::EarlierEntry> earlier;
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const uint64_t bytes = catalog_.shard_bytes()[i];
    if (bytes == 0) continue;
    const auto entry = newest.find(ShardId{i});
    earlier.push_back({ShardId{i}, bytes, entry == newest.end() ? ReplicaSet{} : entry->second});
  }
  Apply(replicas_.Restore(earlier));
  has_waited_ = true;
}

// ---- servers that come and go ----

void ShardDirectory::SendTableTo(SessionId session, bool is_server) {
  if (catalog_.tensors().empty()) return;
  if (is_server) outbox_.Send(session, InstallTensors{catalog_.version(), catalog_.tensors()});
  SetReplicas replicas;
  for (const auto& [shard, entry] : replicas_.table()) replicas.entries.emplace_back(shard, entry);
  outbox_.Send(session, std::move(replicas));
}

void ShardDirectory::AddServer(const RegisterServer& server) {
  Apply(replicas_.AddServer(server.server, server.weight));
}

ShardDirectory::Removal ShardDirectory::RemoveServer(ServerId server, const Consistency& active) {
  losses_.OnServerLost(server);
  Removal removal{.change = replicas_.LoseServer(server), .fatal = std::nullopt};
  const std::string why = removal.change.lost.empty() ? "" : losses_.WhyFatal(active);
  // The job has to be started with every server that shards are assigned to. One beside a worker
  // may come too late for that, and is no loss then.
  const bool is_assigned =
      !WorkerBeside(server) ||
      std::find(primaries_.begin(), primaries_.end(), server) != primaries_.end();
  const bool is_needed = is_assigned && replicas_.table().empty();
  if (!why.empty() || is_needed || is_restoring()) removal.fatal = why;
  return removal;
}

// Entries go out before handovers: the source of a handover must know the entry that it ends.
void ShardDirectory::Apply(const ReplicaChange& change, bool are_first) {
  if (!change.entries.empty()) outbox_.SendToMembers(SetReplicas{change.entries, are_first});
  for (const auto& [server, handover] : change.handovers) outbox_.Send(server, handover);
  lost_.insert(lost_.end(), change.lost.begin(), change.lost.end());
}

void ShardDirectory::OnPromises(ServerId server, const Promises& message) {
  for (const Promise& promise : message.promises) Apply(replicas_.OnPromise(server, promise));
}

// ---- losses ----

std::optional<JobFailure> ShardDirectory::OnRebuilt(ServerId server, const Rebuilt& message) {
  const absl::StatusOr<ReplicaChange> change = losses_.OnRebuilt(server, message);
  if (!change.ok()) return JobFailure{std::string(change.status().message())};
  Apply(*change);
  return std::nullopt;
}

LossHandler::Result ShardDirectory::AdvanceLosses(SteadyTime now,
                                                  const Consistency& active,
                                                  const LossRecovery::Job& job,
                                                  const std::string& checkpoints) {
  if (!lost_.empty()) {
    const std::vector<ShardId> lost = std::exchange(lost_, {});
    if (!losses_.WhyFatal(active).empty()) {
      const std::string more =
          lost.size() > 1 ? absl::StrCat(" and ", lost.size() - 1, " more have") : " has";
      return {.failure = JobFailure{.text = absl::StrCat("shard ",
                                                         lost.front().value(),
                                                         more,
                                                         " no server left that holds their state"),
                                    .is_final = false},
              .silent = {}};
    }
    losses_.Begin(now, lost, catalog_.tensors());
    if (has_waited_) losses_.StopWaiting();
  }
  has_waited_ = false;
  return losses_.Advance(now, job, checkpoints);
}

}  // namespace pushpull
