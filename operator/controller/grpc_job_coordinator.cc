// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/grpc_job_coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/status_client.h"

namespace pushpull_operator {

using pushpull::ControlTarget;
using pushpull::Deadline;
using pushpull::SyncMode;

namespace {

SyncSettings SyncOf(const pushpull::Consistency& consistency) {
  SyncSettings report{.mode = consistency.mode};
  if (report.mode == SyncMode::kBounded) report.staleness = static_cast<int>(consistency.staleness);
  if (report.mode == SyncMode::kSync) {
    report.backup_workers = static_cast<int>(consistency.backup_workers);
    report.is_gated = consistency.gated;
  }
  return report;
}

std::optional<uint32_t> CountOf(const std::optional<int>& count) {
  return count ? std::optional<uint32_t>(static_cast<uint32_t>(*count)) : std::nullopt;
}

// Not kept between calls: creating it costs little next to a handshake, and the TLS library's
// context in it is large.
absl::StatusOr<ControlTarget> TargetOf(const CoordinatorEndpoint& endpoint) {
  ControlTarget target{.address = endpoint.address};
  if (endpoint.tls == nullptr) return target;
  auto identity = pushpull::TlsIdentity::Create(*endpoint.tls);
  if (!identity.ok()) {
    return absl::UnavailableError(absl::StrCat("coordinator at ",
                                               endpoint.address,
                                               ": the job's certificates cannot be used: ",
                                               identity.status().message()));
  }
  target.tls = *std::move(identity);
  return target;
}

}  // namespace

CoordinatorReport ReportOf(const pushpull::JobStatus& status) {
  CoordinatorReport report{
      .job = status.job,
      .term = static_cast<int64_t>(status.term.value()),
      .phase = status.phase,
      .failure = status.failure,
      .can_resume = status.can_resume,
      .failed_ago = std::chrono::seconds(static_cast<int64_t>(status.failed_seconds)),
      .desired_servers = static_cast<int>(status.desired_servers),
      .desired_workers = static_cast<int>(status.desired_workers),
      .global_batch = static_cast<int>(status.global_batch),
      .divides_samples = status.batch > 0,
      .shards_moving = static_cast<int64_t>(status.shards_moving),
      .epoch = static_cast<int64_t>(status.epoch.counter),
      .checkpoint_step = static_cast<int64_t>(status.checkpoint.step.value()),
      .step_before = static_cast<int64_t>(status.step_before.value()),
      .saves_requested = status.checkpoint.requested,
      .saves_finished = status.checkpoint.finished,
      .saves_succeeded = status.checkpoint.succeeded,
      .checkpoint_problem = status.checkpoint.problem,
      .step = static_cast<int64_t>(status.step.value()),
      .has_stepped = status.has_stepped(),
      .samples_per_second =
          status.seconds > 0 ? static_cast<double>(status.samples) / status.seconds : 0,
      .sync_seconds_p50 = status.sync_seconds.At(0.5),
      .sync_seconds_p99 = status.sync_seconds.At(0.99),
      .results = status.results,
      .sync = SyncOf(status.consistency),
      .is_sync_changing = status.is_mode_changing,
      .sync_problem = status.mode_problem};
  if (status.lost_server) report.lost_server = static_cast<int>(status.lost_server->value());
  if (status.began_step) report.began_step = static_cast<int64_t>(status.began_step->value());
  if (status.stall) {
    report.stall = pushpull::ToString(*status.stall);
    report.stall_headline = pushpull::HeadlineOf(*status.stall);
  }
  for (const pushpull::ServerStatus& server : status.servers) {
    if (!server.is_alive) continue;
    report.servers.insert(static_cast<int>(server.server.value()));
    report.server_racks[static_cast<int>(server.server.value())] = server.rack;
  }
  for (const pushpull::WorkerStatus& worker : status.workers) {
    report.workers[static_cast<int>(worker.worker.value())] = {
        .is_alive = worker.is_alive,
        .has_left = worker.has_left,
        .was_released = worker.was_released,
        .joined_ago = std::chrono::seconds(static_cast<int64_t>(worker.joined_seconds)),
        .has_stepped = worker.steps_made > 0,
        .is_left_out = !worker.left_out.empty()};
    if (worker.is_alive) report.worker_racks[static_cast<int>(worker.worker.value())] = worker.rack;
  }
  for (const pushpull::StateLoss& loss : status.state_losses) {
    report.losses.push_back({.is_repaired = loss.is_repaired,
                             .is_undone = loss.returned == loss.shards.size(),
                             .text = pushpull::ToString(loss)});
  }
  return report;
}

absl::StatusOr<CoordinatorReport> GrpcJobCoordinator::GetStatus(const CoordinatorEndpoint& endpoint,
                                                                Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const ControlTarget target, TargetOf(endpoint));
  PUSHPULL_ASSIGN_OR_RETURN(const pushpull::JobStatus status,
                            pushpull::FetchStatus(target, deadline));
  return ReportOf(status);
}

absl::Status GrpcJobCoordinator::Resize(const CoordinatorEndpoint& endpoint,
                                        const RequestSize& size,
                                        Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const ControlTarget target, TargetOf(endpoint));
  pushpull::JobSize asked = {.servers = CountOf(size.servers),
                             .workers = CountOf(size.workers),
                             .global_batch = CountOf(size.global_batch)};
  for (const MemberRack& known : size.racks) {
    asked.racks.push_back({.is_server = known.member.role == pushpull::JobRole::kServer,
                           .index = static_cast<uint32_t>(known.member.index),
                           .rack = known.rack});
  }
  for (const LeftOutWorker& worker : size.left_out) {
    asked.left_out.push_back(
        {.worker = pushpull::WorkerId{static_cast<uint32_t>(worker.index)}, .why = worker.why});
  }
  return pushpull::RequestResize(target, asked, deadline);
}

absl::Status GrpcJobCoordinator::SetSync(const CoordinatorEndpoint& endpoint,
                                         const RequestSync& sync,
                                         Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const ControlTarget target, TargetOf(endpoint));
  return pushpull::RequestMode(target,
                               {.mode = sync.sync.mode,
                                .staleness = static_cast<uint32_t>(sync.sync.staleness),
                                .backup_workers = static_cast<uint32_t>(sync.sync.backup_workers),
                                .gated = sync.sync.is_gated},
                               deadline);
}

absl::StatusOr<uint64_t> GrpcJobCoordinator::Save(const CoordinatorEndpoint& endpoint,
                                                  Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const ControlTarget target, TargetOf(endpoint));
  return pushpull::RequestCheckpoint(target, deadline);
}

}  // namespace pushpull_operator
