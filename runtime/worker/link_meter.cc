// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/link_meter.h"

#include <algorithm>

#include "runtime/transport/peer_clock.h"

namespace pushpull {
namespace {

// A longer interval means that a clock has jumped: a server was replaced, or a peer sends nonsense.
constexpr int64_t kLongest = 3'600'000'000'000;

// A peer's times may be anything: their sums must not overflow.
int64_t Bounded(int64_t ns) {
  constexpr int64_t kFar = int64_t{1} << 60;
  return std::clamp(ns, -kFar, kFar);
}

// 0 if the value is nonsense.
int64_t WorkOf(int64_t ns) {
  return ns > 0 && ns <= kLongest ? ns : 0;
}

}  // namespace

void BusyTime::Add(int64_t begin, int64_t end) {
  if (end - begin > kLongest) return;
  if (until_ - end > kLongest) until_ = begin;
  const int64_t from = std::max(begin, until_);
  if (end <= from) return;
  total_ += end - from;
  until_ = end;
}

void LinkMeter::OnAnswer(ServerId server,
                         SteadyTime received,
                         const PublishedTiming& timing,
                         Duration offset,
                         uint64_t bytes) {
  Link& link = links_[server];
  link.bytes += bytes;
  const int64_t here = NanosecondsOf(received);
  const int64_t ahead = NanosecondsOf(offset);
  const int64_t arrived = Bounded(timing.received_at);
  const int64_t published = Bounded(timing.published_at);
  // A wrong estimate of the offset must not move an end into the future.
  link.up.Add(Bounded(timing.push_sent_at), std::min(arrived - ahead, here));
  link.down.Add(published - ahead, here);
  link.queue.Add(arrived, arrived + Bounded(timing.server_queue_ns));
  // A lane does one thing at a time, so no union is needed, and none is lost to the order of
  // answers.
  link.work += WorkOf(timing.sum_ns) + WorkOf(timing.optimize_ns);
}

void LinkMeter::OnStep(const SyncObservation& observation) {
  if (!observation.step) return;
  Duration others{0};
  for (size_t i = 0; i < kSyncPhaseCount; ++i) {
    const auto phase = static_cast<SyncPhase>(i);
    const bool is_own =
        phase == SyncPhase::kReduce || phase == SyncPhase::kEncode || phase == SyncPhase::kApply;
    if (!is_own) others += std::max(observation.phases[i], Duration{0});
  }
  ++steps_;
  step_ += *observation.step;
  own_ += std::max(*observation.step - others, Duration{0});
  wait_ += observation.phases[static_cast<size_t>(SyncPhase::kWait)];
}

StepCosts LinkMeter::costs() const {
  StepCosts costs{.steps = steps_,
                  .step_seconds = ToSeconds(step_),
                  .own_seconds = ToSeconds(own_),
                  .wait_seconds = ToSeconds(wait_),
                  .links = {}};
  costs.links.reserve(links_.size());
  for (const auto& [server, link] : links_) {
    costs.links.push_back(
        {.server = server,
         .bytes = link.bytes,
         .link_seconds = link.up.seconds() + link.down.seconds(),
         .server_seconds = link.queue.seconds() + static_cast<double>(link.work) * 1e-9});
  }
  return costs;
}

}  // namespace pushpull
