// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/contributors.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/coordinator/restorer.h"
#include "runtime/coordinator/ring_rules.h"
#include "runtime/coordinator/value_rules.h"

namespace pushpull {
namespace {

// A worker's step may take a while, and no other worker starts the next one meanwhile.
constexpr Duration kModeSwitchTimeout = std::chrono::seconds(120);

std::set<ServerId> FirstServers(uint32_t count) {
  std::set<ServerId> servers;
  for (uint32_t i = 0; i < count; ++i) servers.insert(ServerId{i});
  return servers;
}

}  // namespace

Contributors::Contributors(JobState& job, const TensorCatalog& catalog)
    : job_(job),
      catalog_(catalog),
      views_(FirstServers(job.options.settings.servers),
             job.options.continues()
                 ? RestoredConsistency(job.options.consistency, *job.options.restore)
                 : job.options.consistency),
      groups_(job.options.local_reduce),
      mode_switch_(kModeSwitchTimeout) {
  if (!job.options.consistency.is_ring()) return;
  ring_.emplace(job.options.term, job.options.ring_secret, job.options.consistency, job.saved);
}

bool Contributors::IsGivenUp(const RegisterWorker& worker) const {
  // In a ring it takes the others' values and continues from there.
  if (!worker.is_member || ring_) return false;
  const ViewMember* member = active().Find(worker.worker);
  return member == nullptr || member->incarnation != worker.incarnation;
}

std::set<WorkerId> Contributors::Reachable() const {
  std::set<WorkerId> reachable;
  for (const ViewMember& member : active().members) {
    const auto* worker = job_.members.Find(member.worker);
    if (worker != nullptr && worker->info.incarnation == member.incarnation)
      reachable.insert(member.worker);
  }
  return reachable;
}

absl::Status Contributors::CheckIn(const Consistency& consistency,
                                   std::span<const TensorSpec> tensors) const {
  if (ring_) return CheckRingTensors(tensors);
  PUSHPULL_RETURN_IF_ERROR(CheckValueTypes(tensors, consistency));
  PUSHPULL_RETURN_IF_ERROR(CheckClipping(tensors, consistency));
  PUSHPULL_RETURN_IF_ERROR(CheckRowMode(tensors, consistency));
  return CheckCodecs(tensors,
                     {.consistency = consistency,
                      .is_deterministic = job_.options.settings.deterministic,
                      .has_checkpoints = job_.options.checkpoint.has_value()});
}

void Contributors::SendViewsTo(SessionId server) {
  if (active().number > 0) job_.outbox.Send(server, ActivateView{active()});
  if (const std::optional<View> proposed = views_.proposed())
    job_.outbox.Send(server, ProposeView{*proposed});
}

void Contributors::AdmitReady(uint32_t desired_workers) {
  if (mode_switch_.is_under_way()) return;
  std::map<WorkerId, Incarnation> ready;
  size_t registered = 0;
  bool goes_on = false;
  for (const auto& [id, worker] : job_.members.workers()) {
    if (!worker.has_registered_tensors || worker.is_leaving) continue;
    ++registered;
    // A coordinator that replaces an earlier one has waited for all of them.
    goes_on = goes_on || (ring_ && worker.info.is_member);
    if (!agreement().IsMember(id)) ready[id] = worker.info.incarnation;
  }
  if (!has_started_ && registered < desired_workers && !goes_on) return;
  SetGroups();
  Apply(agreement().Join(ready));
}

void Contributors::Remind(const MemberRegistry::Worker& worker) {
  const ViewMember* member = active().Find(worker.info.worker);
  const bool is_unaware =
      member != nullptr && !worker.info.is_member && member->incarnation == worker.info.incarnation;
  if (!is_unaware) return;
  // Initial values count only if there are none yet.
  job_.outbox.Send(
      worker.session,
      TensorsRegistered{catalog_.tensors(), member->from_step, member->from_step == Step{0}});
}

void Contributors::OnProgress(WorkerId worker, const WorkerStats& stats) {
  const uint64_t skipped = active().consistency.steps_skipped;
  views_.OnProgress(worker, Step{stats.step.value() + skipped});
}

void Contributors::OnLeave(WorkerId worker, Step end_step, bool is_released) {
  const ViewChange change = agreement().Leave(worker, end_step, is_released);
  // A worker that was never admitted waits for an answer as well.
  if (!change.activate) job_.outbox.Send(worker, ActivateView{active()});
  Apply(change);
}

void Contributors::Recover(const CollectedJob& job) {
  View view = job.view;
  if (view.number == 0) view.consistency = job_.options.consistency;
  views_ = ViewAgreement::FromCollected(
      job_.members.ServerIds(), std::move(view), job.last_view_number, job.established);
  has_started_ = job.has_contributors;
}

// The view is sent before the admissions: a worker that learns its first step may push at once, and
// servers must count it by then.
void Contributors::Apply(const ViewChange& change) {
  if (change.activate) {
    job_.outbox.SendToMembers(ActivateView{*change.activate});
    SendGroups();
  }
  for (const ViewMember& member : change.admitted) {
    // A job that continues has values everywhere.
    const bool is_fresh = member.from_step == Step{0} && !job_.options.continues();
    job_.outbox.Send(member.worker,
                     TensorsRegistered{catalog_.tensors(), member.from_step, is_fresh});
    job_.outbox.Log(
        absl::StrCat(ToString(member.worker), " contributes from step ", member.from_step.value()));
    has_started_ = true;
  }
  if (change.propose) job_.outbox.SendToServers(ProposeView{*change.propose});
  if (!change.problem.empty()) job_.outbox.Warn(change.problem);
  if (!change.failure.empty()) job_.Fail({.text = change.failure});
  if (change.stop) {
    for (const WorkerId worker : change.stopped) job_.outbox.Send(worker, *change.stop);
  }
  if (change.form) SendRing(*change.form);
}

// A worker without a session will have been declared lost by the time it would answer.
void Contributors::SendRing(FormRing form) {
  if (form.is_fresh) job_.BeginAt(form.mark.step);
  for (RingWorker& worker : form.workers) {
    const auto* member = job_.members.Find(worker.worker);
    if (member == nullptr) continue;
    worker.address = member->info.ring_address;
    worker.rack = member->info.rack;
  }
  for (const RingWorker& worker : form.workers) job_.outbox.Send(worker.worker, form);
  job_.outbox.Log(absl::StrCat("ring ",
                               ToString(form.epoch),
                               ": ",
                               form.workers.size(),
                               " workers from step ",
                               form.mark.step.value()));
}

void Contributors::SendGroups() {
  for (auto& [worker, group] : groups_.Update(active(), job_.members))
    job_.outbox.Send(worker, std::move(group));
}

// ---- samples ----

bool Contributors::DividesSamples() const {
  return absl::c_any_of(catalog_.tensors(), [](const PlacedTensor& tensor) {
    return tensor.spec.name == kSampleQueueTensor;
  });
}

absl::Status Contributors::CheckDividesSamples() const {
  if (DividesSamples()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("spec.workers.globalBatch: job %s divides no data set among its workers "
                      "(Job::UseSamples), so its steps have no common batch",
                      job_.options.settings.job));
}

// ---- modes ----

absl::StatusOr<Consistency> Contributors::CheckMode(const ModeChange& change,
                                                    uint32_t desired_workers) const {
  if (ring_ || change.mode == SyncMode::kAllReduce) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "spec.sync.mode: job %s runs in mode %s; a running job cannot change to or from AllReduce, "
        "nor change anything else of spec.sync in it",
        job_.options.settings.job,
        NameOf(active().consistency.mode)));
  }
  PUSHPULL_ASSIGN_OR_RETURN(
      const Consistency desired,
      WantedMode(active().consistency,
                 change,
                 {.is_deterministic = job_.options.settings.deterministic,
                  .measures_noise = job_.options.settings.noise_scale,
                  .sums_locally = job_.options.local_reduce != LocalReduce::kNone,
                  .divides_samples = DividesSamples(),
                  .workers = desired_workers}));
  PUSHPULL_RETURN_IF_ERROR(CheckIn(desired, catalog_.Specs()));
  return desired;
}

absl::Status Contributors::ChangeMode(const Consistency& desired) {
  if (mode_switch_.is_under_way()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %s is changing its mode to %s: wait for that",
                        job_.options.settings.job,
                        Describe(mode_switch_.wanted())));
  }
  Consistency in_force = active().consistency;
  in_force.from_step = desired.from_step;
  in_force.steps_skipped = desired.steps_skipped;
  if (in_force == desired) return absl::OkStatus();
  job_.outbox.Log(
      absl::StrCat("mode: ", Describe(active().consistency), " -> ", Describe(desired)));
  mode_switch_.Begin(job_.now, desired);
  return absl::OkStatus();
}

bool Contributors::AdvanceMode(bool may_begin) {
  if (!mode_switch_.is_under_way()) return false;
  const ModeSwitch::Orders orders =
      mode_switch_.Advance(job_.now, active(), may_begin && !views_.proposed());
  for (const auto& [worker, hold] : orders.holds) job_.outbox.Send(worker, hold);
  for (const auto& [worker, resume] : orders.resumes) job_.outbox.Send(worker, resume);
  if (orders.first_step) Apply(views_.ChangeMode(mode_switch_.wanted(), *orders.first_step));
  if (mode_switch_.is_under_way()) return false;
  const Consistency& active = agreement().active().consistency;
  if (!mode_switch_.problem().empty()) {
    job_.outbox.Warn(mode_switch_.problem());
  } else {
    job_.outbox.Log(
        absl::StrCat("mode ", Describe(active), " from step ", active.from_step.value(), " on"));
  }
  return true;
}

}  // namespace pushpull
