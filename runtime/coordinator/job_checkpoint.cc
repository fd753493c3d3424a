// SPDX-License-Identifier: Apache-2.0
//
// The part of JobCore that saves and restores: what checkpoint_agreement.h decides, in messages to
// the servers and commands to who may wait for a disk.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"
#include "runtime/coordinator/job_core.h"

namespace pushpull {
namespace {

constexpr uint32_t kExitUsage = 2;         // the checkpoint is of another model
constexpr uint32_t kExitNotReachable = 3;  // it is damaged or cannot be read

// Where every chunk is at another version, the highest.
std::optional<Step> CommonVersion(const CheckpointManifest& manifest) {
  if (manifest.versions == ChunkVersions::kOfOneStep) return std::nullopt;
  Step highest;
  for (const StoredChunk& chunk : manifest.chunks) highest = std::max(highest, chunk.place.version);
  return highest;
}

// The number of Consistency::steps_skipped: 8 bytes, little-endian.
constexpr char kStepsSkippedSection[] = "steps_skipped";

}  // namespace

Consistency JobCore::FirstConsistency(const JobCoreOptions& options) {
  Consistency first = options.consistency;
  if (!options.restore) return first;
  for (const SystemSection& section : options.restore->manifest.system) {
    if (section.name == kStepsSkippedSection && section.bytes.size() == sizeof first.steps_skipped)
      first.steps_skipped = LoadNumber<uint64_t>(section.bytes);
  }
  return first;
}

// ---- saving ----

absl::StatusOr<JobCore::Save> JobCore::SaveCheckpoint(SteadyTime now) {
  now_ = now;
  const std::string job = absl::StrCat("job ", options_.settings.job);
  if (!checkpoints_) {
    return absl::FailedPreconditionError(
        absl::StrCat(job, ": has no spec.checkpoint, so it is not known where to save"));
  }
  if (phase_ == JobPhase::kSucceeded || phase_ == JobPhase::kFailed || failed_at_)
    return absl::FailedPreconditionError(absl::StrCat(job, " is over"));
  if (!started_at_)
    return absl::FailedPreconditionError(absl::StrCat(job, " has not begun its first step yet"));
  Carry(checkpoints_->Request(now, CheckpointView()));
  return Save{checkpoints_->status().requested, std::exchange(commands_, {})};
}

std::vector<Command> JobCore::OnManifest(SteadyTime now,
                                         uint64_t attempt,
                                         const absl::Status& written) {
  now_ = now;
  if (checkpoints_) Carry(checkpoints_->OnManifest(now, CheckpointView(), attempt, written));
  return std::exchange(commands_, {});
}

std::vector<Command> JobCore::OnCleared(SteadyTime now, uint64_t attempt) {
  now_ = now;
  if (checkpoints_) Carry(checkpoints_->OnCleared(now, CheckpointView(), attempt));
  return std::exchange(commands_, {});
}

void JobCore::On(SessionId session, const Captured& message) {
  const Server* server = Find<Server>(session);
  const Worker* worker = Find<Worker>(session);
  if (server == nullptr && worker == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a member can capture"));
  if (!checkpoints_) return;
  if (worker != nullptr)
    return Carry(checkpoints_->OnWhole(CheckpointView(), worker->info.worker, message));
  Carry(checkpoints_->OnCaptured(now_, CheckpointView(), server->info.server, message));
}

CheckpointAgreement::Job JobCore::CheckpointView() const {
  CheckpointAgreement::Job job{.highest_version = std::max(statistics_.HighestVersion(), end_step_),
                               .is_over = phase_ == JobPhase::kSucceeded,
                               .versions = agreement_.active().consistency.is_sync()
                                               ? ChunkVersions::kOfOneStep
                                               : ChunkVersions::kOfEachChunk};
  if (options_.restore)
    job.highest_version = std::max(job.highest_version, options_.restore->manifest.step);
  for (const PlacedTensor& tensor : catalog_.tensors()) job.num_chunks += tensor.shards.size();
  return job;
}

void JobCore::UpdateCheckpointServers() {
  if (checkpoints_) Carry(checkpoints_->SetServers(now_, CheckpointView(), ServersThere()));
}

// Members of steps to come whose codecs keep something back; those that have left have lost it.
void JobCore::UpdateCheckpointWorkers() {
  if (!checkpoints_) return;
  std::set<WorkerId> workers;
  for (const ViewMember& member : agreement_.active().members) {
    if (catalog_.has_codec_memory() && !member.end_step) workers.insert(member.worker);
  }
  Carry(checkpoints_->SetWorkers(CheckpointView(), std::move(workers)));
}

// Workers have no part in what is captured when all of them have left.
void JobCore::SendToCapturing(const ToMember& message) {
  SendToServers(message);
  if (catalog_.has_codec_memory() && phase_ != JobPhase::kSucceeded) SendToWorkers(message);
}

void JobCore::SaveAtEnd() {
  if (checkpoints_ && started_at_) Carry(checkpoints_->EndJob(now_, CheckpointView()));
}

void JobCore::Carry(CheckpointChange change) {
  if (!change.said.empty()) Say(change.said, change.is_problem);
  if (change.end) SendToCapturing(*change.end);
  if (change.capture) SendToCapturing(*change.capture);
  if (change.manifest) {
    CheckpointManifest manifest{.job = options_.settings.job,
                                .step = change.manifest->step,
                                .mode = std::string(NameOf(agreement_.active().consistency.mode)),
                                .versions = change.manifest->versions};
    for (const PlacedTensor& tensor : catalog_.tensors()) manifest.tensors.push_back(tensor.spec);
    ByteWriter skipped;
    skipped.Put(agreement_.active().consistency.steps_skipped);
    manifest.system.push_back({kStepsSkippedSection, skipped.Take()});
    commands_.push_back(SaveManifest{.attempt = change.manifest->attempt,
                                     .folder = options_.checkpoint->folder,
                                     .keep = options_.checkpoint->keep,
                                     .manifest = std::move(manifest),
                                     .files = std::move(change.manifest->files)});
  }
  if (change.clearing) {
    commands_.push_back(ClearCheckpoint{.attempt = change.clearing->attempt,
                                        .folder = options_.checkpoint->folder,
                                        .step = change.clearing->step});
  }
}

// ---- restoring ----

// A checkpoint of another model ends the job before anything was changed.
bool JobCore::IsRestorable(const std::vector<TensorSpec>& tensors) {
  if (!options_.restore) return true;
  const std::vector<std::string> differences = CompareTensors(options_.restore->manifest, tensors);
  if (differences.empty()) return true;
  Fail(absl::StrCat(options_.restore->folder,
                    ": is a checkpoint of another model: ",
                    differences.front(),
                    differences.size() > 1
                        ? absl::StrCat(", and ", differences.size() - 1, " more differences")
                        : "",
                    "; change the program back, or spec.checkpoint"),
       kExitUsage);
  phase_ = JobPhase::kFailed;
  return false;
}

// Every member of a shard reads its chunks itself. So all have the same when the first entries say
// that nobody lacks anything, as all have nothing where a job begins anew.
void JobCore::RestoreThen(ReplicaChange first) {
  Restore order{.folder = options_.restore->folder,
                .sequence = options_.restore->manifest.sequence,
                .shards = {}};
  if (options_.consistency.is_sync()) order.version = CommonVersion(options_.restore->manifest);
  std::map<ServerId, Restore> orders;
  for (const auto& [server, session] : servers_) orders[server] = order;
  for (const auto& [shard, entry] : first.entries) {
    if (entry.primary) orders[*entry.primary].shards.push_back(shard);
    for (const ServerId follower : entry.followers) orders[follower].shards.push_back(shard);
  }
  for (const auto& [server, session] : servers_) Send(session, orders[server]);
  Say(absl::StrCat("restoring step ",
                   options_.restore->manifest.step.value(),
                   " from ",
                   options_.restore->folder));
  first_entries_ = std::move(first);
}

void JobCore::On(SessionId session, const Restored& message) {
  const Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can restore"));
  if (!first_entries_ || failed_at_) return;
  if (!message.status.ok()) {
    Fail(absl::StrCat(ToString(server->info.server),
                      " cannot restore the checkpoint: ",
                      message.status.message()),
         kExitNotReachable);
    phase_ = JobPhase::kFailed;
    return;
  }
  restored_.insert(server->info.server);
  if (restored_.size() < servers_.size()) return;
  const ReplicaChange first = *std::exchange(first_entries_, std::nullopt);
  PlaceFirst(first);
  AdmitReady();
}

}  // namespace pushpull
