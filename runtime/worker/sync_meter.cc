// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sync_meter.h"

namespace pushpull {
namespace {

SteadyTime FromNanoseconds(int64_t ns) {
  return SteadyTime(std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(ns)));
}

Duration Ns(int64_t ns) {
  return std::chrono::nanoseconds(ns);
}

}  // namespace

PhaseTimes PhasesOf(const PushTimes& times, const PublishedTiming& server, Duration offset) {
  PhaseTimes phases{};
  const auto at = [&](SyncPhase phase) -> Duration& { return phases[static_cast<size_t>(phase)]; };
  const SteadyTime sent = FromNanoseconds(server.push_sent_at);
  at(SyncPhase::kReduce) = times.reduce;
  at(SyncPhase::kEncode) = times.encode;
  at(SyncPhase::kQueue) = (times.taken_up - times.ready) + (sent - times.queued);
  at(SyncPhase::kWire) = FromNanoseconds(server.received_at) - offset - sent;
  at(SyncPhase::kServerQueue) = Ns(server.server_queue_ns);
  at(SyncPhase::kWait) = Ns(server.wait_ns) + times.group_wait;
  at(SyncPhase::kSum) = Ns(server.sum_ns);
  at(SyncPhase::kOptimize) = Ns(server.optimize_ns);
  at(SyncPhase::kReplicate) = Ns(server.replicate_ns);
  at(SyncPhase::kReply) = times.received - (FromNanoseconds(server.published_at) - offset);
  at(SyncPhase::kApply) = times.applied - times.received;
  return phases;
}

void SyncMeter::OnPush(Step step, SteadyTime ready) {
  if (step_ == step) return;
  step_ = step;
  first_ready_ = ready;
  chunks_back_ = 0;
}

void SyncMeter::OnApplied(Step step, SteadyTime applied, const PhaseTimes& phases) {
  if (step_ != step || ++chunks_back_ < num_chunks_) return;
  SyncObservation observation{
      .number = step, .sync = applied - first_ready_, .phases = phases, .step = std::nullopt};
  if (last_end_) observation.step = applied - *last_end_;
  last_end_ = applied;
  observer_(observation);
}

}  // namespace pushpull
