// SPDX-License-Identifier: Apache-2.0
//
// What JobCore tells of the job.
#include "runtime/coordinator/job_core.h"

namespace pushpull {

JobStatus JobCore::Status(SteadyTime now) const {
  JobStatus status;
  status.job = options_.settings.job;
  status.phase = phase_;
  if (collection_ && phase_ == JobPhase::kStarting) status.phase = JobPhase::kRecovering;
  status.failure = failure_;
  status.failure_exit_code = failure_exit_code_;
  if (checkpoints_) status.checkpoint = checkpoints_->status();
  status.term = options_.term;
  status.epoch = replicas_.epoch();
  status.servers_wanted = wanted_servers_;
  status.workers_wanted = workers_.wanted();
  status.shards_moving = replicas_.shards_moving();
  status.resizes = resizes_.resizes();
  status.state_losses = loss_log_.losses();
  status.view = agreement_.active().number;
  status.consistency = agreement_.active().consistency;
  status.is_mode_changing = mode_switch_.is_under_way();
  status.mode_problem = mode_switch_.problem();
  if (started_at_) status.seconds = ToSeconds(ended_at_.value_or(now) - *started_at_);
  status.stall = stalls_.Current();
  statistics_.AddTo(status);
  for (const auto& [server, session] : servers_) {
    const RegisterServer& info = std::get<Server>(members_.at(session).role).info;
    status.servers.push_back({.server = server,
                              .is_alive = true,
                              .data_address = info.data_address,
                              .metrics_address = info.metrics_address,
                              .pid = info.pid,
                              .stats = statistics_.Server(server)});
  }
  for (const auto& [worker, slot] : workers_.entries()) {
    status.workers.push_back({.worker = worker,
                              .is_alive = slot.is_alive,
                              .is_member = agreement_.IsMember(worker),
                              .has_left = slot.has_left,
                              .was_released = slot.was_released,
                              .metrics_address = slot.info.metrics_address,
                              .pid = slot.info.pid,
                              .step = statistics_.WorkerStep(worker)});
  }
  return status;
}

}  // namespace pushpull
