// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/shard_directory.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/shard/placement.h"

namespace pushpull {

ShardDirectory::ShardDirectory(JobState& job)
    : job_(job),
      replicas_({.term = job.options.term,
                 .replication = job.options.settings.replication,
                 .rebuilds = job.options.repairs_losses}),
      restorer_(job.options.restore, job.options.restores_values_only) {}

void ShardDirectory::Prepare() {
  is_prepared_ = true;
  if (!has_servers()) return catalog_.SetServers(std::vector<ServerId>(kShardCount), {1});
  std::vector<ServerId> ids;
  std::vector<double> weights;
  for (const auto& [id, server] : job_.members.servers()) {
    ids.push_back(id);
    weights.push_back(server.info.weight);
    AddServer(server.info);
  }
  // Placement numbers servers from 0; those beside workers have other indices.
  absl::StatusOr<std::vector<ServerId>> places = AssignShards(weights);
  if (!places.ok()) {
    is_prepared_ = false;
    return job_.Fail(
        {.text = absl::StrCat("placing shards: ", places.status().message()), .is_final = false});
  }
  primaries_.clear();
  for (const ServerId place : *places) primaries_.push_back(ids[place.value()]);
  catalog_.SetServers(*std::move(places), std::move(weights));
}

void ShardDirectory::Place() {
  const std::optional<LoadedCheckpoint>& restore = job_.options.restore;
  if (restore) {
    const absl::Status fits = restorer_.Check(catalog_.Specs());
    if (!fits.ok()) return job_.Fail({std::string(fits.message()), kExitUsage});
    job_.outbox.Log(restorer_.Describe(catalog_.Specs()));
  }
  if (!has_servers()) return;
  job_.outbox.SendToServers(InstallTensors{catalog_.version(), catalog_.tensors()});
  std::vector<ReplicaAgreement::FirstEntry> entries;
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const uint64_t bytes = catalog_.shard_bytes()[shard];
    if (bytes > 0) entries.push_back({ShardId{shard}, bytes, primaries_[shard]});
  }
  ReplicaChange first = replicas_.Place(entries);
  if (!restore) return Apply(first, true);
  const auto& orders = restorer_.Begin(
      std::move(first), job_.members.ServerIds(), job_.options.consistency.is_sync());
  for (const auto& [server, order] : orders) job_.outbox.Send(server, order);
}

void ShardDirectory::OnRestored(ServerId server, const Restored& message) {
  if (!message.status.ok()) {
    return job_.Fail(
        {absl::StrCat(
             ToString(server), " cannot restore the checkpoint: ", message.status.message()),
         kExitNotReachable});
  }
  restorer_.OnRestored(server);
  const std::optional<ReplicaChange> first = restorer_.Finish();
  if (!first) return;
  Apply(*first, true);
  for (const auto& [id, member] : job_.members.servers()) AddServer(member.info);
}

bool ShardDirectory::LoseAtStart(ServerId server) {
  if (is_restoring()) {
    restorer_.OnLost(server);
    return true;
  }
  if (is_placed()) return false;
  replicas_.LoseServer(server);  // there is no entry yet that could list it
  is_prepared_ = false;
  return true;
}

// ---- a new coordinator ----

void ShardDirectory::RecoverTensors(const CollectedJob& job) {
  absl::StatusOr<TensorCatalog> catalog = TensorCatalog::FromPlaced(job.tensors);
  if (!catalog.ok())
    return job_.Fail({.text = std::string(catalog.status().message()), .is_final = false});
  if (job.has_begun && job.tensors.empty())
    return job_.Fail({.text = "no server is left that knows the job's tensors", .is_final = false});
  catalog_ = *std::move(catalog);
}

void ShardDirectory::RecoverServers(const std::set<ServerId>& target) {
  for (const auto& [id, server] : job_.members.servers()) {
    if (server.table_version < catalog_.version())
      job_.outbox.Send(id, InstallTensors{catalog_.version(), catalog_.tensors()});
    AddServer(server.info);  // has no further effect before there are entries
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
}

// ---- servers that join and leave ----

// The first entries are sent to all when the checkpoint has been read. A server that takes the
// place of one that died meanwhile reads the same part.
void ShardDirectory::SendTableTo(SessionId session, bool is_server) {
  if (catalog_.tensors().empty()) return;
  if (is_server) job_.outbox.Send(session, InstallTensors{catalog_.version(), catalog_.tensors()});
  if (!is_restoring()) {
    const auto& table = replicas_.table();
    job_.outbox.Send(session, SetReplicas{.entries = {table.begin(), table.end()}});
  } else if (const std::optional<ServerId> server = job_.members.ServerAt(session)) {
    if (const Restore* order = restorer_.Find(*server)) job_.outbox.Send(session, *order);
  }
}

void ShardDirectory::AddServer(const RegisterServer& server) {
  if (!is_restoring()) Apply(replicas_.AddServer(server.server, server.weight, server.rack));
}

// Entries are sent before handovers: the source of a handover must know the entry that it ends.
void ShardDirectory::Apply(const ReplicaChange& change, bool are_first) {
  if (!change.entries.empty()) job_.outbox.SendToMembers(SetReplicas{change.entries, are_first});
  for (const auto& [server, handover] : change.handovers) job_.outbox.Send(server, handover);
  lost_.insert(lost_.end(), change.lost.begin(), change.lost.end());
}

void ShardDirectory::OnPromises(ServerId server, const Promises& message) {
  for (const Promise& promise : message.promises) Apply(replicas_.OnPromise(server, promise));
}

}  // namespace pushpull
