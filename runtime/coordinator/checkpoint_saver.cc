// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_saver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace pushpull {

CheckpointSaver::CheckpointSaver(JobState& job, const JobMembers& members)
    : job_(job), members_(members) {
  if (!job_.options.checkpoint) return;
  agreement_.emplace(*job_.options.checkpoint);
  if (job_.options.restore) agreement_->SetRestored(job_.options.restore->manifest.step);
}

std::string CheckpointSaver::NewestCheckpoint() const {
  if (!agreement_) return "";
  const CheckpointStatus& status = agreement_->status();
  if (status.saved > 0) return StepFolder(job_.options.checkpoint->folder, status.step);
  return job_.options.restore ? job_.options.restore->folder : "";
}

void CheckpointSaver::Start() {
  if (agreement_ && !std::exchange(has_started_, true)) agreement_->Start(job_.now);
}

absl::Status CheckpointSaver::Request() {
  if (!agreement_) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %s: has no spec.checkpoint, so it is not known where to save",
                        job_.options.settings.job));
  }
  Apply(agreement_->Request(View()));
  return absl::OkStatus();
}

void CheckpointSaver::UpdateMembers() {
  if (!agreement_) return;
  if (servers_revision_ != job_.members.servers_revision()) {
    servers_revision_ = job_.members.servers_revision();
    Apply(agreement_->SetServers(View(), job_.members.ServerIds()));
  }
  const pushpull::View& view = members_.contributors().active();
  if (view.number == view_) return;
  view_ = view.number;
  // Workers capture only if a codec keeps a residual. The residual of a leaving worker is lost.
  std::set<WorkerId> workers;
  for (const ViewMember& member : view.members) {
    if (members_.shards().catalog().has_codec_memory() && !member.end_step)
      workers.insert(member.worker);
  }
  Apply(agreement_->SetWorkers(View(), std::move(workers)));
}

void CheckpointSaver::SendCaptureTo(SessionId session) {
  const bool has_part =
      job_.members.ServerAt(session).has_value() || members_.shards().catalog().has_codec_memory();
  if (agreement_ && agreement_->capture() && has_part)
    job_.outbox.Send(session, *agreement_->capture());
}

void CheckpointSaver::EndJob() {
  is_over_ = true;
  if (agreement_) Apply(agreement_->EndJob(View()));
}

CheckpointAgreement::Job CheckpointSaver::View() const {
  CheckpointAgreement::Job job{
      .now = job_.now,
      .highest_version = std::max(job_.statistics.HighestVersion(), members_.end_step()),
      .is_over = is_over_,
      .versions = members_.contributors().active().consistency.is_sync()
                      ? ChunkVersions::kOfOneStep
                      : ChunkVersions::kOfEachChunk};
  if (job_.options.restore)
    job.highest_version = std::max(job.highest_version, job_.options.restore->manifest.step);
  for (const PlacedTensor& tensor : members_.shards().catalog().tensors())
    job.num_chunks += tensor.shards.size();
  return job;
}

void CheckpointSaver::Apply(CheckpointChange change) {
  const TensorCatalog& catalog = members_.shards().catalog();
  if (!change.said.empty()) job_.outbox.Add(Announce{change.is_problem, change.said});
  const auto send = [&](const ToMember& message) {
    job_.outbox.SendToServers(message);
    if (catalog.has_codec_memory() && !is_over_) job_.outbox.SendToWorkers(message);
  };
  if (change.end) send(*change.end);
  if (change.capture) send(*change.capture);
  if (change.manifest) {
    const Consistency& active = members_.contributors().active().consistency;
    CheckpointManifest& manifest = change.manifest->manifest;
    manifest.owner = job_.options.checkpoint->owner;
    manifest.mode = std::string(NameOf(active.mode));
    manifest.tensors = catalog.Specs();
    manifest.system.push_back(StepsSkippedSection(active));
    job_.outbox.Add(*std::move(change.manifest));
  }
  if (change.clearing) job_.outbox.Add(*change.clearing);
  if (change.probe) job_.outbox.Add(*std::move(change.probe));
}

}  // namespace pushpull
