// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/job_status_proto.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/replica_set_proto.h"
#include "runtime/membership/stats_proto.h"

namespace pushpull {
namespace {

void Write(const ServerStatus& server, v1::JobStatus::Server& out) {
  out.set_server(server.server.value());
  out.set_is_alive(server.is_alive);
  out.set_data_address(ToWireText(server.data_address));
  out.set_metrics_address(ToWireText(server.metrics_address));
  out.set_pid(server.pid);
  ToProto(server.stats, *out.mutable_stats());
}

void Write(const WorkerStatus& worker, v1::JobStatus::Worker& out) {
  out.set_worker(worker.worker.value());
  out.set_is_alive(worker.is_alive);
  out.set_is_member(worker.is_member);
  out.set_has_left(worker.has_left);
  out.set_was_released(worker.was_released);
  out.set_metrics_address(ToWireText(worker.metrics_address));
  out.set_pid(worker.pid);
  out.set_step(worker.step.value());
}

void Write(const ResizeStatus& resize, v1::JobStatus::Resize& out) {
  out.set_step(resize.step.value());
  out.set_from(resize.from);
  out.set_to(resize.to);
  out.set_is_settled(resize.is_settled);
  out.set_is_final(resize.is_final);
  out.set_seconds(resize.seconds);
  out.set_pause_seconds(resize.pause_seconds);
  out.set_moved_bytes(resize.moved_bytes);
}

void Write(const StateLoss& loss, v1::JobStatus::StateLoss& out) {
  for (const ServerId server : loss.servers) out.add_servers(server.value());
  for (const ShardId shard : loss.shards) out.add_shards(shard.value());
  out.set_chunks(loss.chunks);
  out.set_is_waiting(loss.is_waiting);
  out.set_is_repaired(loss.is_repaired);
  out.set_returned(loss.returned);
  out.set_lowest_version(loss.lowest_version.value());
  out.set_highest_version(loss.highest_version.value());
  out.set_from_workers(loss.from_workers);
  out.set_from_checkpoint(loss.from_checkpoint);
  out.set_begun_anew(loss.begun_anew);
  out.set_outdated(loss.outdated);
  out.set_has_optimizer_state(loss.has_optimizer_state);
  if (loss.state_step) out.set_state_step(loss.state_step->value());
  out.set_seconds(loss.seconds);
}

absl::StatusOr<StateLoss> Read(const v1::JobStatus::StateLoss& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("servers of a loss", wire.servers_size(), kWireServersMax));
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("shards of a loss", wire.shards_size(), static_cast<int>(kShardCount)));
  StateLoss loss{
      .servers = {},
      .shards = {},
      .chunks = wire.chunks(),
      .is_waiting = wire.is_waiting(),
      .is_repaired = wire.is_repaired(),
      .returned = wire.returned(),
      .lowest_version = Step{wire.lowest_version()},
      .highest_version = Step{wire.highest_version()},
      .from_workers = wire.from_workers(),
      .from_checkpoint = wire.from_checkpoint(),
      .begun_anew = wire.begun_anew(),
      .outdated = wire.outdated(),
      .has_optimizer_state = wire.has_optimizer_state(),
      .state_step = wire.has_state_step() ? std::optional<Step>(wire.state_step()) : std::nullopt,
      .seconds = wire.seconds()};
  for (const uint32_t server : wire.servers()) loss.servers.emplace_back(server);
  for (const uint32_t shard : wire.shards()) {
    PUSHPULL_ASSIGN_OR_RETURN(const ShardId read, ShardFromProto(shard));
    loss.shards.push_back(read);
  }
  return loss;
}

void Write(const CheckpointStatus& checkpoint, v1::JobStatus::Checkpoint& out) {
  out.set_step(checkpoint.step.value());
  out.set_saved(checkpoint.saved);
  out.set_failures(checkpoint.failures);
  out.set_failure(ToWireText(checkpoint.failure));
  out.set_requested(checkpoint.requested);
  out.set_finished(checkpoint.finished);
  out.set_finished_well(checkpoint.finished_well);
  out.set_seconds(checkpoint.seconds);
  if (checkpoint.restored_step) out.set_restored_step(checkpoint.restored_step->value());
}

CheckpointStatus Read(const v1::JobStatus::Checkpoint& wire) {
  return {.step = Step{wire.step()},
          .saved = wire.saved(),
          .failures = wire.failures(),
          .failure = wire.failure(),
          .requested = wire.requested(),
          .finished = wire.finished(),
          .finished_well = wire.finished_well(),
          .seconds = wire.seconds(),
          .restored_step =
              wire.has_restored_step() ? std::optional<Step>(wire.restored_step()) : std::nullopt};
}

ServerStatus Read(const v1::JobStatus::Server& wire) {
  return {.server = ServerId{wire.server()},
          .is_alive = wire.is_alive(),
          .data_address = wire.data_address(),
          .metrics_address = wire.metrics_address(),
          .pid = wire.pid(),
          .stats = FromProto(wire.stats())};
}

WorkerStatus Read(const v1::JobStatus::Worker& wire) {
  return {.worker = WorkerId{wire.worker()},
          .is_alive = wire.is_alive(),
          .is_member = wire.is_member(),
          .has_left = wire.has_left(),
          .was_released = wire.was_released(),
          .metrics_address = wire.metrics_address(),
          .pid = wire.pid(),
          .step = Step{wire.step()}};
}

ResizeStatus Read(const v1::JobStatus::Resize& wire) {
  return {.step = Step{wire.step()},
          .from = wire.from(),
          .to = wire.to(),
          .is_settled = wire.is_settled(),
          .is_final = wire.is_final(),
          .seconds = wire.seconds(),
          .pause_seconds = wire.pause_seconds(),
          .moved_bytes = wire.moved_bytes()};
}

absl::Status CheckForm(const v1::JobStatus& wire) {
  if (wire.phase() < static_cast<uint32_t>(JobPhase::kStarting) ||
      wire.phase() > static_cast<uint32_t>(JobPhase::kRecovering)) {
    return absl::InvalidArgumentError(absl::StrCat("phase ", wire.phase(), " is not known"));
  }
  PUSHPULL_RETURN_IF_ERROR(CheckCount("sync phases", wire.phase_seconds_size(), kSyncPhaseCount));
  PUSHPULL_RETURN_IF_ERROR(CheckCount("losses", wire.losses_size(), kWireLossesMax));
  PUSHPULL_RETURN_IF_ERROR(CheckCount("servers", wire.servers_size(), kWireServersMax));
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("uneven steps", wire.newest_uneven_steps_size(), JobStatus::kUnevenStepsMax));
  PUSHPULL_RETURN_IF_ERROR(CheckCount("resizes", wire.resizes_size(), JobStatus::kResizesMax));
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("losses of state", wire.state_losses_size(), JobStatus::kStateLossesMax));
  return CheckCount("workers", wire.workers_size(), kWireWorkersMax);
}

}  // namespace

void ToProto(const JobStatus& status, v1::JobStatus& out) {
  out.set_job(ToWireText(status.job));
  out.set_phase(static_cast<uint32_t>(status.phase));
  out.set_failure(ToWireText(status.failure));
  out.set_term(status.term.value());
  ToProto(status.epoch, *out.mutable_epoch());
  out.set_view(status.view);
  out.set_step(status.step.value());
  out.set_samples(status.samples);
  out.set_seconds(status.seconds);
  out.set_bytes_pushed(status.bytes_pushed);
  out.set_bytes_pulled(status.bytes_pulled);
  out.set_bytes_replicated(status.bytes_replicated);
  out.set_servers_wanted(status.servers_wanted);
  out.set_workers_wanted(status.workers_wanted);
  out.set_shards_moving(status.shards_moving);
  out.set_resends(status.resends);
  out.set_contributors_min(status.contributors_min);
  out.set_contributors_max(status.contributors_max);
  out.set_uneven_steps(status.uneven_steps);
  for (const Step step : status.newest_uneven_steps) out.add_newest_uneven_steps(step.value());
  ToProto(status.sync_seconds, *out.mutable_sync_seconds());
  for (const Quantiles& phase : status.phase_seconds) ToProto(phase, *out.add_phase_seconds());
  for (const LossPoint& point : status.losses) ToProto(point, *out.add_losses());
  ToProto(status.results, *out.mutable_results());
  for (const ServerStatus& server : status.servers) Write(server, *out.add_servers());
  for (const WorkerStatus& worker : status.workers) Write(worker, *out.add_workers());
  if (status.stall) ToProto(*status.stall, *out.mutable_stall());
  for (const ResizeStatus& resize : status.resizes) Write(resize, *out.add_resizes());
  for (const StateLoss& loss : status.state_losses) Write(loss, *out.add_state_losses());
  Write(status.checkpoint, *out.mutable_checkpoint());
  out.set_failure_exit_code(status.failure_exit_code);
  ToProto(status.consistency, *out.mutable_consistency());
  out.set_is_mode_changing(status.is_mode_changing);
  out.set_mode_problem(ToWireText(status.mode_problem));
}

void ToProto(const absl::StatusOr<uint64_t>& number, v1::SaveCheckpointResponse& out) {
  ToProto(number.status(), *out.mutable_status());
  if (number.ok()) out.set_number(*number);
}

absl::StatusOr<JobStatus> FromProto(const v1::JobStatus& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckForm(wire));
  JobStatus status;
  status.job = wire.job();
  status.phase = static_cast<JobPhase>(wire.phase());
  status.failure = wire.failure();
  status.term = Term{wire.term()};
  status.epoch = FromProto(wire.epoch());
  status.view = wire.view();
  status.step = Step{wire.step()};
  status.samples = wire.samples();
  status.seconds = wire.seconds();
  status.bytes_pushed = wire.bytes_pushed();
  status.bytes_pulled = wire.bytes_pulled();
  status.bytes_replicated = wire.bytes_replicated();
  status.servers_wanted = wire.servers_wanted();
  status.workers_wanted = wire.workers_wanted();
  status.shards_moving = wire.shards_moving();
  status.resends = wire.resends();
  status.contributors_min = wire.contributors_min();
  status.contributors_max = wire.contributors_max();
  status.uneven_steps = wire.uneven_steps();
  for (const uint64_t step : wire.newest_uneven_steps())
    status.newest_uneven_steps.emplace_back(step);
  PUSHPULL_ASSIGN_OR_RETURN(status.sync_seconds, FromProto(wire.sync_seconds()));
  for (int i = 0; i < wire.phase_seconds_size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(status.phase_seconds[static_cast<size_t>(i)],
                              FromProto(wire.phase_seconds(i)));
  }
  for (const v1::LossPoint& point : wire.losses()) status.losses.push_back(FromProto(point));
  PUSHPULL_ASSIGN_OR_RETURN(status.results, FromProto(wire.results()));
  for (const v1::JobStatus::Server& server : wire.servers()) status.servers.push_back(Read(server));
  for (const v1::JobStatus::Worker& worker : wire.workers()) status.workers.push_back(Read(worker));
  if (wire.has_stall()) status.stall = FromProto(wire.stall());
  for (const v1::JobStatus::Resize& resize : wire.resizes()) status.resizes.push_back(Read(resize));
  for (const v1::JobStatus::StateLoss& loss : wire.state_losses()) {
    PUSHPULL_ASSIGN_OR_RETURN(StateLoss read, Read(loss));
    status.state_losses.push_back(std::move(read));
  }
  status.checkpoint = Read(wire.checkpoint());
  status.failure_exit_code = wire.failure_exit_code();
  if (wire.has_consistency()) {
    PUSHPULL_ASSIGN_OR_RETURN(status.consistency, FromProto(wire.consistency()));
  }
  status.is_mode_changing = wire.is_mode_changing();
  status.mode_problem = wire.mode_problem();
  return status;
}

void ToProto(const JobSize& size, v1::ResizeRequest& out) {
  if (size.servers) out.set_servers(*size.servers);
  if (size.workers) out.set_workers(*size.workers);
}

JobSize FromProto(const v1::ResizeRequest& request) {
  JobSize size;
  if (request.has_servers()) size.servers = request.servers();
  if (request.has_workers()) size.workers = request.workers();
  return size;
}

}  // namespace pushpull
