// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/contributors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/coordinator/restorer.h"

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

Contributors::Contributors(const JobCoreOptions& options,
                           const MemberRegistry& members,
                           const TensorCatalog& catalog,
                           Outbox& outbox)
    : options_(options),
      members_(members),
      catalog_(catalog),
      outbox_(outbox),
      agreement_(FirstServers(options.settings.servers),
                 RestoredConsistency(options.consistency, options.restore)),
      mode_switch_(kModeSwitchTimeout) {}

bool Contributors::IsGivenUp(const RegisterWorker& worker) const {
  if (!worker.is_member) return false;
  const ViewMember* member = active().Find(worker.worker);
  return member == nullptr || member->incarnation != worker.incarnation;
}

std::set<WorkerId> Contributors::Reachable() const {
  std::set<WorkerId> reachable;
  for (const ViewMember& member : active().members) {
    const auto* worker = members_.Find(member.worker);
    if (worker != nullptr && worker->info.incarnation == member.incarnation)
      reachable.insert(member.worker);
  }
  return reachable;
}

CodecRules Contributors::CodecRulesIn(const Consistency& consistency) const {
  return {.consistency = consistency,
          .is_deterministic = options_.settings.deterministic,
          .has_checkpoints = options_.checkpoint.has_value()};
}

void Contributors::UpdateServers() {
  Apply(agreement_.SetServers(members_.ServerIds()));
}

void Contributors::SendViewsTo(SessionId server) {
  if (active().number > 0) outbox_.Send(server, ActivateView{active()});
  if (const std::optional<View> proposed = agreement_.proposed())
    outbox_.Send(server, ProposeView{*proposed});
}

void Contributors::AdmitReady() {
  if (is_mode_changing()) return;
  std::map<WorkerId, Incarnation> ready;
  size_t registered = 0;
  for (const auto& [id, worker] : members_.workers()) {
    if (!worker.has_registered_tensors || worker.is_leaving) continue;
    ++registered;
    if (!agreement_.IsMember(id)) ready[id] = worker.info.incarnation;
  }
  if (!has_started_ && registered < options_.settings.workers) return;
  Apply(agreement_.Join(ready));
}

void Contributors::Remind(const MemberRegistry::Worker& worker) {
  const ViewMember* member = active().Find(worker.info.worker);
  const bool is_unaware =
      member != nullptr && !worker.info.is_member && member->incarnation == worker.info.incarnation;
  if (!is_unaware) return;
  // Initial values count only where there are none yet.
  outbox_.Send(
      worker.session,
      TensorsRegistered{catalog_.tensors(), member->from_step, member->from_step == Step{0}});
}

void Contributors::OnAnswer(ServerId server, const ViewAnswer& answer) {
  Apply(agreement_.Answer(server, answer));
}

void Contributors::OnProgress(WorkerId worker, const WorkerStats& stats) {
  const uint64_t skipped = active().consistency.steps_skipped;
  agreement_.OnProgress(worker, Step{stats.step.value() + skipped});
}

void Contributors::OnLeave(WorkerId worker, Step end_step, bool is_released) {
  const ViewChange change = agreement_.Leave(worker, end_step, is_released);
  // A worker that was never admitted waits for an answer, too.
  if (!change.activate) outbox_.Send(worker, ActivateView{active()});
  Apply(change);
}

void Contributors::Remove(WorkerId worker) {
  Apply(agreement_.Remove(worker));
}

void Contributors::Recover(const CollectedJob& job) {
  View view = job.view;
  if (view.number == 0) view.consistency = options_.consistency;
  agreement_ = ViewAgreement::FromCollected(
      members_.ServerIds(), std::move(view), job.last_view_number, job.established);
  has_started_ = job.has_begun;
}

// The view goes out before the admissions: a worker that learns of its first step may push at once,
// and servers must count it by then.
void Contributors::Apply(const ViewChange& change) {
  if (change.activate) outbox_.SendToMembers(ActivateView{*change.activate});
  for (const ViewMember& member : change.admitted) {
    // A restored job has values everywhere.
    const bool is_fresh = member.from_step == Step{0} && !options_.restore;
    outbox_.Send(member.worker, TensorsRegistered{catalog_.tensors(), member.from_step, is_fresh});
    outbox_.Log(
        absl::StrCat(ToString(member.worker), " contributes from step ", member.from_step.value()));
    has_started_ = true;
  }
  if (change.propose) outbox_.SendToServers(ProposeView{*change.propose});
}

// ---- modes ----

absl::StatusOr<Consistency> Contributors::CheckMode(const ModeChange& change,
                                                    uint32_t desired_workers) const {
  const auto& tensors = catalog_.tensors();
  const bool divides_samples =
      std::any_of(tensors.begin(), tensors.end(), [](const PlacedTensor& tensor) {
        return tensor.spec.name == kSampleQueueTensor;
      });
  PUSHPULL_ASSIGN_OR_RETURN(const Consistency desired,
                            WantedMode(active().consistency,
                                       change,
                                       {.is_deterministic = options_.settings.deterministic,
                                        .divides_samples = divides_samples,
                                        .workers = desired_workers}));
  PUSHPULL_RETURN_IF_ERROR(CheckCodecs(catalog_.Specs(), CodecRulesIn(desired)));
  return desired;
}

absl::Status Contributors::ChangeMode(SteadyTime now, const Consistency& desired) {
  if (is_mode_changing()) {
    return absl::FailedPreconditionError(absl::StrCat("job ",
                                                      options_.settings.job,
                                                      " is changing its mode to ",
                                                      Describe(mode_switch_.wanted()),
                                                      ": wait for that"));
  }
  Consistency in_force = active().consistency;
  in_force.from_step = desired.from_step;
  in_force.steps_skipped = desired.steps_skipped;
  if (in_force == desired) return absl::OkStatus();
  outbox_.Log(absl::StrCat("mode: ", Describe(active().consistency), " -> ", Describe(desired)));
  mode_switch_.Begin(now, desired);
  return absl::OkStatus();
}

bool Contributors::AdvanceMode(SteadyTime now, bool may_begin) {
  if (!is_mode_changing()) return false;
  const ModeSwitch::Orders orders =
      mode_switch_.Advance(now, active(), may_begin && !agreement_.proposed());
  for (const auto& [worker, hold] : orders.holds) outbox_.Send(worker, hold);
  for (const auto& [worker, resume] : orders.resumes) outbox_.Send(worker, resume);
  if (orders.first_step) Apply(agreement_.ChangeMode(mode_switch_.wanted(), *orders.first_step));
  if (is_mode_changing()) return false;
  const Consistency& active = agreement_.active().consistency;
  if (!mode_problem().empty()) {
    outbox_.Warn(mode_problem());
  } else {
    outbox_.Log(
        absl::StrCat("mode ", Describe(active), " from step ", active.from_step.value(), " on"));
  }
  return true;
}

}  // namespace pushpull
