// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_saver.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// A file of a few bytes, on a disk that is used anyway.
constexpr Duration kNotePeriod = std::chrono::seconds(2);

}  // namespace

CheckpointSaver::CheckpointSaver(JobState& job, const JobMembers& members)
    : job_(job), members_(members) {
  if (!job_.options.checkpoint) return;
  agreement_.emplace(*job_.options.checkpoint);
  if (job_.options.continues()) agreement_->SetRestored(job_.options.restore->manifest.step);
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

void CheckpointSaver::OnManifest(uint64_t attempt, const absl::Status& written) {
  if (!agreement_) return;
  const uint64_t saved = agreement_->status().saved;
  Apply(agreement_->OnManifest(View(), attempt, written));
  const CheckpointStatus& status = agreement_->status();
  if (status.saved == saved) return;
  job_.saved = {.folder = StepFolder(job_.options.checkpoint->folder, status.step),
                .step = status.step};
}

void CheckpointSaver::OnCaptured(WorkerId worker, const Captured& message) {
  if (!agreement_) return;
  Apply(is_ring() ? agreement_->OnCaptured(View(), worker, message)
                  : agreement_->OnWhole(View(), worker, message));
}

void CheckpointSaver::UpdateMembers() {
  if (!agreement_) return;
  if (!is_ring() && servers_revision_ != job_.members.servers_revision()) {
    servers_revision_ = job_.members.servers_revision();
    const std::set<ServerId> servers = job_.members.ServerIds();
    Apply(agreement_->SetCapturers(View(), {servers.begin(), servers.end()}));
  }
  const pushpull::View& view = members_.contributors().active();
  if (view.number == view_) return;
  view_ = view.number;
  if (is_ring()) return UpdateRing(view);
  // The residual of a leaving worker is lost, and its state others have.
  std::set<WorkerId> workers;
  for (const ViewMember& member : view.members)
    if (HaveWorkersPart() && !member.end_step) workers.insert(member.worker);
  Apply(agreement_->SetWorkers(View(), std::move(workers)));
}

// A worker that joins during an attempt has no part: the others have all chunks.
void CheckpointSaver::UpdateRing(const pushpull::View& view) {
  std::set<Capturer> capturers;
  for (const ViewMember& member : view.members) capturers.insert(member.worker);
  Apply(agreement_->SetCapturers(View(), std::move(capturers)));
  // No parts: there was no worker when the attempt began.
  const bool is_whole = !parts_.empty() && absl::c_all_of(parts_, [&](const ViewMember& part) {
    const ViewMember* member = view.Find(part.worker);
    return member != nullptr && member->incarnation == part.incarnation;
  });
  if (!is_whole) Apply(agreement_->OnPartLost());
}

void CheckpointSaver::SendParts(const Capture& order) {
  parts_ = members_.contributors().active().members;
  Capture part = order;
  part.parts = static_cast<uint32_t>(parts_.size());
  for (const ViewMember& member : parts_) {
    job_.outbox.Send(member.worker, part);
    ++part.part;
  }
}

void CheckpointSaver::SendCaptureTo(SessionId session) {
  if (is_ring()) return;
  const bool has_part = job_.members.ServerAt(session).has_value() || HaveWorkersPart();
  if (agreement_ && agreement_->capture() && has_part)
    job_.outbox.Send(session, *agreement_->capture());
}

void CheckpointSaver::EndJob() {
  is_over_ = true;
  if (!agreement_) return;
  if (!is_ring()) return Apply(agreement_->EndJob(View()));
  // The values are gone with the workers.
  if (!is_idle()) Apply(agreement_->GiveUp());
}

void CheckpointSaver::SetStanding(bool is_standing) {
  if (is_standing_ == is_standing) return;
  is_standing_ = is_standing;
  has_saved_last_ = false;
  if (is_standing && !is_over_ && !is_idle()) Apply(agreement_->EndJob(View()));
}

void CheckpointSaver::FollowStep() {
  job_.reached = std::max(job_.reached, View().highest_version);
  if (!agreement_ || job_.reached == noted_ || job_.now < next_note_) return;
  noted_ = job_.reached;
  next_note_ = job_.now + kNotePeriod;
  job_.outbox.Add(NoteStep{job_.options.checkpoint->folder, noted_});
}

void CheckpointSaver::SaveLast() {
  if (!agreement_ || std::exchange(has_saved_last_, true)) return;
  Apply(agreement_->EndJob(View()));
}

Announce CheckpointSaver::DescribeLast(const std::string& obstacle) const {
  const Step reached = std::max(job_.reached, View().highest_version);
  if (!agreement_) {
    return {true,
            absl::StrCat("all members end after step ",
                         reached.value(),
                         ": without spec.checkpoint the job's steps are lost")};
  }
  const CheckpointStatus& status = agreement_->status();
  const Step saved = status.saved > 0 ? status.step : status.restored_step.value_or(Step{});
  // Where chunks have versions of their own, the step is that of reports, which are a little older.
  const bool has_all = has_saved_last_ && is_idle() && status.succeeded == status.requested;
  if (saved >= reached || has_all) {
    return {
        false,
        absl::StrCat("all members end, the checkpoint of step ", saved.value(), " is the last")};
  }
  std::string why = obstacle.empty() ? status.problem : obstacle;
  if (why.empty()) why = "there was no time to save them";
  return {true,
          absl::StrCat("all members end after step ",
                       reached.value(),
                       ", the last checkpoint is of step ",
                       saved.value(),
                       ": the steps between are lost: ",
                       why)};
}

bool CheckpointSaver::Stays(const ViewMember& member) const {
  const auto* worker = job_.members.Find(member.worker);
  return worker != nullptr && !member.end_step && !leaves_.contains(worker->session) &&
         !job_.statistics.IsEnding(member.worker);
}

bool CheckpointSaver::IsRingLeaving() const {
  const std::vector<ViewMember>& workers = members_.contributors().active().members;
  return is_ring() && !workers.empty() &&
         absl::c_none_of(workers, [this](const ViewMember& member) { return Stays(member); });
}

bool CheckpointSaver::KeepLeave(SessionId session, const Leave& leave) {
  const std::optional<WorkerId> worker = job_.members.WorkerAt(session);
  if (!agreement_ || !is_ring() || !worker || job_.lifecycle.is_over()) return false;
  const bool somebody_stays = absl::c_any_of(
      members_.contributors().active().members,
      [&](const ViewMember& member) { return member.worker != *worker && Stays(member); });
  if (leave.is_released && somebody_stays) return false;
  // A member of an earlier coordinator's ring will be one of this coordinator's first.
  const bool has_values = members_.contributors().active().Find(*worker) != nullptr ||
                          job_.members.Find(*worker)->info.is_member;
  if (has_values) leaves_[session].leave = leave;
  return has_values;
}

std::map<SessionId, Leave> CheckpointSaver::TakeLeaves() {
  std::map<SessionId, Leave> taken;
  if (leaves_.empty() || members_.is_recovering()) return taken;
  std::erase_if(leaves_,
                [&](const auto& entry) { return !job_.members.WorkerAt(entry.first).has_value(); });
  const pushpull::View& view = members_.contributors().active();
  bool has_new = false;
  for (auto& [session, kept] : leaves_) {
    if (kept.is_saving || view.Find(*job_.members.WorkerAt(session)) == nullptr) continue;
    kept.is_saving = has_new = true;
  }
  if (has_new) Apply(agreement_->EndJob(View()));
  if (!is_idle()) return taken;
  for (const auto& [session, kept] : leaves_)
    if (kept.is_saving) taken.emplace(session, kept.leave);
  std::erase_if(leaves_, [](const auto& entry) { return entry.second.is_saving; });
  return taken;
}

CheckpointAgreement::Job CheckpointSaver::View() const {
  const Step reported =
      is_ring() ? job_.statistics.HighestWorkerStep() : job_.statistics.HighestVersion();
  Step highest = std::max(reported, members_.end_step());
  bool is_over = is_over_ || is_standing_;
  for (const auto& [session, kept] : leaves_) {
    if (!kept.is_saving) continue;
    highest = std::max(highest, kept.leave.end_step);
    is_over = true;
  }
  CheckpointAgreement::Job job{.now = job_.now,
                               .highest_version = highest,
                               .is_over = is_over,
                               .versions = members_.contributors().active().consistency.is_sync()
                                               ? ChunkVersions::kOfOneStep
                                               : ChunkVersions::kOfEachChunk};
  if (job_.options.continues() && !is_ring())
    job.highest_version = std::max(job.highest_version, job_.options.restore->manifest.step);
  for (const PlacedTensor& tensor : members_.shards().catalog().tensors())
    job.num_chunks += tensor.shards.size();
  return job;
}

bool CheckpointSaver::HaveWorkersPart() const {
  return members_.contributors().active().consistency.is_sync();
}

void CheckpointSaver::Apply(CheckpointChange change) {
  const TensorCatalog& catalog = members_.shards().catalog();
  if (!change.said.empty()) job_.outbox.Add(Announce{change.is_problem, change.said});
  const auto send = [&](const ToMember& message) {
    job_.outbox.SendToServers(message);
    if (is_ring() || (HaveWorkersPart() && !is_over_)) job_.outbox.SendToWorkers(message);
  };
  if (change.end) {
    send(*change.end);
    parts_.clear();
  }
  if (change.capture && is_ring()) SendParts(*change.capture);
  if (change.capture && !is_ring()) send(*change.capture);
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
