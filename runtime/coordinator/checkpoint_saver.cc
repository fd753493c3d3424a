// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_saver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

CheckpointSaver::CheckpointSaver(const JobCoreOptions& options,
                                 const MemberRegistry& registry,
                                 const JobMembers& members,
                                 const JobStatistics& statistics,
                                 Outbox& outbox)
    : options_(options),
      registry_(registry),
      members_(members),
      statistics_(statistics),
      outbox_(outbox) {
  if (!options_.checkpoint) return;
  agreement_.emplace(*options_.checkpoint);
  if (options_.restore) agreement_->SetRestored(options_.restore->manifest.step);
}

std::string CheckpointSaver::FolderInUse() const {
  if (!agreement_) return "";
  const std::string& folder = options_.checkpoint->folder;
  const bool has_started_there =
      options_.restore.has_value() && absl::StartsWith(options_.restore->folder, folder);
  return has_started_there || agreement_->status().saved > 0 ? folder : "";
}

void CheckpointSaver::Start(SteadyTime now) {
  if (agreement_ && !std::exchange(has_started_, true)) agreement_->Start(now);
}

absl::StatusOr<uint64_t> CheckpointSaver::Request(SteadyTime now) {
  if (!agreement_) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ",
                     options_.settings.job,
                     ": has no spec.checkpoint, so it is not known where to save"));
  }
  Apply(agreement_->Request(now, View()));
  return agreement_->status().requested;
}

void CheckpointSaver::OnTick(SteadyTime now) {
  if (agreement_) Apply(agreement_->OnTick(now, View()));
}

void CheckpointSaver::OnManifest(SteadyTime now, uint64_t attempt, const absl::Status& written) {
  if (agreement_) Apply(agreement_->OnManifest(now, View(), attempt, written));
}

void CheckpointSaver::OnCleared(SteadyTime now, uint64_t attempt) {
  if (agreement_) Apply(agreement_->OnCleared(now, View(), attempt));
}

void CheckpointSaver::OnCaptured(SteadyTime now, ServerId server, const Captured& message) {
  if (agreement_) Apply(agreement_->OnCaptured(now, View(), server, message));
}

void CheckpointSaver::OnCaptured(WorkerId worker, const Captured& message) {
  if (agreement_) Apply(agreement_->OnWhole(View(), worker, message));
}

void CheckpointSaver::UpdateMembers(SteadyTime now) {
  if (!agreement_) return;
  if (servers_revision_ != registry_.servers_revision()) {
    servers_revision_ = registry_.servers_revision();
    Apply(agreement_->SetServers(now, View(), registry_.ServerIds()));
  }
  const pushpull::View& view = members_.contributors().active();
  if (view.number == view_) return;
  view_ = view.number;
  // Only codecs that keep a part of a gradient back make a worker capture. One that leaves has lost
  // that part.
  std::set<WorkerId> workers;
  for (const ViewMember& member : view.members) {
    if (members_.shards().catalog().has_codec_memory() && !member.end_step)
      workers.insert(member.worker);
  }
  Apply(agreement_->SetWorkers(View(), std::move(workers)));
}

void CheckpointSaver::SendCaptureTo(SessionId session) {
  const bool has_part =
      registry_.ServerAt(session).has_value() || members_.shards().catalog().has_codec_memory();
  if (agreement_ && agreement_->capture() && has_part)
    outbox_.Send(session, *agreement_->capture());
}

void CheckpointSaver::EndJob(SteadyTime now) {
  is_over_ = true;
  if (agreement_) Apply(agreement_->EndJob(now, View()));
}

void CheckpointSaver::GiveUp() {
  if (agreement_) Apply(agreement_->GiveUp());
}

CheckpointAgreement::Job CheckpointSaver::View() const {
  CheckpointAgreement::Job job{
      .highest_version = std::max(statistics_.HighestVersion(), members_.end_step()),
      .is_over = is_over_,
      .versions = members_.contributors().active().consistency.is_sync()
                      ? ChunkVersions::kOfOneStep
                      : ChunkVersions::kOfEachChunk};
  if (options_.restore)
    job.highest_version = std::max(job.highest_version, options_.restore->manifest.step);
  for (const PlacedTensor& tensor : members_.shards().catalog().tensors())
    job.num_chunks += tensor.shards.size();
  return job;
}

void CheckpointSaver::Apply(CheckpointChange change) {
  const TensorCatalog& catalog = members_.shards().catalog();
  if (!change.said.empty()) outbox_.Add(Announce{change.is_problem, change.said});
  const auto send = [&](const ToMember& message) {
    outbox_.SendToServers(message);
    if (catalog.has_codec_memory() && !is_over_) outbox_.SendToWorkers(message);
  };
  if (change.end) send(*change.end);
  if (change.capture) send(*change.capture);
  if (change.manifest) {
    const Consistency& active = members_.contributors().active().consistency;
    CheckpointManifest manifest{.job = options_.settings.job,
                                .step = change.manifest->step,
                                .mode = std::string(NameOf(active.mode)),
                                .versions = change.manifest->versions};
    manifest.tensors = catalog.Specs();
    manifest.system.push_back(StepsSkippedSection(active));
    outbox_.Add(SaveManifest{.attempt = change.manifest->attempt,
                             .folder = options_.checkpoint->folder,
                             .keep = options_.checkpoint->keep,
                             .manifest = std::move(manifest),
                             .files = std::move(change.manifest->files)});
  }
  if (change.clearing) {
    outbox_.Add(ClearCheckpoint{.attempt = change.clearing->attempt,
                                .folder = options_.checkpoint->folder,
                                .step = change.clearing->step});
  }
}

}  // namespace pushpull
