// SPDX-License-Identifier: Apache-2.0
//
// The part of JobCore that users ask for while the job runs: another size, another mode.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/coordinator/job_core.h"

namespace pushpull {

// ---- size ----

absl::StatusOr<std::vector<Command>> JobCore::Resize(SteadyTime now, const JobSize& size) {
  now_ = now;
  PUSHPULL_RETURN_IF_ERROR(CheckSize(size));
  if (phase_ == JobPhase::kSucceeded || phase_ == JobPhase::kFailed || failed_at_)
    return absl::FailedPreconditionError(absl::StrCat("job ", options_.settings.job, " is over"));
  if (collection_) {
    return absl::UnavailableError(absl::StrCat(
        "job ", options_.settings.job, " is being recovered: try again in a few seconds"));
  }
  if (primaries_.empty() || first_entries_ || (size.workers && !started_at_)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ",
                     options_.settings.job,
                     " has not started yet: wait until its ",
                     primaries_.empty() ? "servers are there" : "first step"));
  }
  if (size.servers) ResizeServers(*size.servers);
  if (size.workers) ResizeWorkers(*size.workers);
  return TakeCommands();
}

void JobCore::ResizeServers(uint32_t servers) {
  if (servers == wanted_servers_) return;
  Say(absl::StrCat("servers: ", wanted_servers_, " -> ", servers));
  resizes_.Begin(now_,
                 {.step = statistics_.HighestVersion(), .from = wanted_servers_, .to = servers},
                 ResizeTotals());
  wanted_servers_ = servers;
  TellWanted();
  Retarget();
}

// Those that are not wanted leave by themselves after the step they are in; who is wanted again and
// has not left stays.
void JobCore::ResizeWorkers(uint32_t workers) {
  if (workers == workers_.wanted()) return;
  Say(absl::StrCat("workers: ", workers_.wanted(), " -> ", workers));
  const uint32_t before = workers_.wanted();
  workers_.SetWanted(workers);
  TellWanted();
  Retarget();  // the servers beside them come and go with them
  for (const auto& [session, member] : members_) {
    const auto* worker = std::get_if<Worker>(&member.role);
    if (worker == nullptr || worker->is_leaving) continue;
    const bool was_wanted = worker->info.worker.value() < before;
    const bool is_wanted = workers_.IsWanted(worker->info.worker);
    if (was_wanted != is_wanted) Send(session, Release{!is_wanted});
  }
  EndIfComplete();
}

// Members keep it for the next coordinator.
void JobCore::TellWanted() {
  ++wanted_revision_;
  SendToServers(MakeServerList());
  SendToWorkers(MakeServerList());
}

absl::Status JobCore::CheckSize(const JobSize& size) const {
  const auto check = [](absl::string_view field, uint32_t wanted, uint32_t low, uint32_t high) {
    if (wanted >= std::max(low, 1u) && wanted <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(field,
                                                   ".replicas: must be between ",
                                                   low,
                                                   " (minReplicas) and ",
                                                   high,
                                                   " (maxReplicas), is ",
                                                   wanted));
  };
  if (size.workers) {
    PUSHPULL_RETURN_IF_ERROR(
        check("spec.workers", *size.workers, options_.min_workers, options_.max_workers));
  }
  if (!size.servers) return absl::OkStatus();
  const uint32_t replication = options_.settings.replication;
  if (*size.servers <= replication && replication > 0) {
    return absl::InvalidArgumentError(absl::StrCat("spec.servers.replicas: must be above ",
                                                   replication,
                                                   " (spec.servers.replication), is ",
                                                   *size.servers));
  }
  return check("spec.servers", *size.servers, options_.min_servers, options_.max_servers);
}

ResizeLog::Totals JobCore::ResizeTotals() const {
  return {statistics_.SyncSeconds(), statistics_.BytesCopied()};
}

bool JobCore::IsSettled() const {
  return replicas_.shards_moving() == 0 && AreFirstThere(wanted_servers_) &&
         std::all_of(servers_.begin(), servers_.end(), [this](const auto& server) {
           return IsWanted(server.first);
         });
}

// ---- modes ----

absl::StatusOr<std::vector<Command>> JobCore::SetMode(SteadyTime now, const ModeChange& change) {
  now_ = now;
  const Consistency& active = agreement_.active().consistency;
  const auto& tensors = catalog_.tensors();
  const bool divides_samples =
      std::any_of(tensors.begin(), tensors.end(), [](const PlacedTensor& tensor) {
        return tensor.spec.name == kSampleQueueTensor;
      });
  PUSHPULL_ASSIGN_OR_RETURN(const Consistency wanted,
                            WantedMode(active,
                                       change,
                                       {.is_deterministic = options_.settings.deterministic,
                                        .divides_samples = divides_samples,
                                        .workers = workers_.wanted()}));
  std::vector<TensorSpec> specs;
  for (const PlacedTensor& tensor : tensors) specs.push_back(tensor.spec);
  PUSHPULL_RETURN_IF_ERROR(CheckCodecs(specs, CodecRulesIn(wanted)));
  const std::string job = absl::StrCat("job ", options_.settings.job);
  if (phase_ == JobPhase::kSucceeded || phase_ == JobPhase::kFailed || failed_at_)
    return absl::FailedPreconditionError(absl::StrCat(job, " is over"));
  if (!started_at_) {
    return absl::FailedPreconditionError(
        absl::StrCat(job, " has not started yet: wait until its workers are there"));
  }
  if (mode_switch_.is_under_way()) {
    return absl::FailedPreconditionError(absl::StrCat(
        job, " is changing its mode to ", Describe(mode_switch_.wanted()), ": wait for that"));
  }
  if (wanted.mode == active.mode && wanted.staleness == active.staleness &&
      wanted.backup_workers == active.backup_workers && wanted.gated == active.gated)
    return std::vector<Command>();
  Say(absl::StrCat("mode: ", Describe(active), " -> ", Describe(wanted)));
  mode_switch_.Begin(now, wanted);
  return TakeCommands();
}

CodecRules JobCore::CodecRulesIn(const Consistency& consistency) const {
  return {.consistency = consistency,
          .is_deterministic = options_.settings.deterministic,
          .has_checkpoints = options_.checkpoint.has_value()};
}

void JobCore::AdvanceModeSwitch() {
  if (!mode_switch_.is_under_way() || failed_at_) return;
  const ModeSwitch::Orders orders = mode_switch_.Advance(
      now_, agreement_.active(), !agreement_.proposed() && phase_ == JobPhase::kRunning);
  for (const auto& [worker, hold] : orders.holds) Send(SessionOfWorker(worker), hold);
  for (const auto& [worker, resume] : orders.resumes) Send(SessionOfWorker(worker), resume);
  if (orders.first_step) Carry(agreement_.ChangeMode(mode_switch_.wanted(), *orders.first_step));
  if (mode_switch_.is_under_way()) return;
  const bool has_failed = !mode_switch_.problem().empty();
  const Consistency& active = agreement_.active().consistency;
  Say(has_failed
          ? mode_switch_.problem()
          : absl::StrCat("mode ", Describe(active), " from step ", active.from_step.value(), " on"),
      has_failed);
  AdmitReady();
}

void JobCore::On(SessionId session, const StepsHeld& message) {
  const Worker* worker = Find<Worker>(session);
  if (worker == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a worker has steps to hold"));
  mode_switch_.OnHeld(worker->info.worker, message);
}

}  // namespace pushpull
