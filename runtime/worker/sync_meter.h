// SPDX-License-Identifier: Apache-2.0
//
// How long a step's synchronization took, and where: from the first gradient ready to the last
// parameter applied, and the phases of the chunk that arrived last (docs/interfaces.md section 7).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/transport/frame.h"

namespace pushpull {

using PhaseTimes = std::array<Duration, kSyncPhaseCount>;

// The times of one chunk's push, by the worker's clock.
struct PushTimes {
  SteadyTime ready;     // the program handed the gradient over
  SteadyTime taken_up;  // the worker's thread began to handle it
  Duration reduce{0};
  Duration encode{0};
  Duration group_wait{0};  // for other workers of the group, until their sum was complete
  SteadyTime queued;       // handed to the channel's queue
  SteadyTime received;     // the new version had arrived completely
  SteadyTime applied;      // the program can see it
};

// Identifies a chunk's push that has been answered.
struct AnsweredPush {
  ServerId server;
  ChunkId chunk;
  Step step;
  uint64_t bytes = 0;  // of gradient and value, as they travelled
  Duration offset{0};  // the server's clock minus the worker's
};

// The phases of one push. `offset` is the server's clock minus the worker's. Each phase is the
// difference of two clock readings; none is the remainder of the others.
PhaseTimes PhasesOf(const PushTimes& times, const PublishedTiming& server, Duration offset);

struct SyncObservation {
  Step number;  // of the step
  Duration sync;
  PhaseTimes phases;
  std::optional<Duration> step;  // since the last step ended; empty for the first
};

// Thread-confined to the worker's executor.
class SyncMeter {
 public:
  using Observer = std::function<void(const SyncObservation&)>;

  // `num_chunks`: over all tensors; a step is over when all are back.
  SyncMeter(uint64_t num_chunks, Observer observer)
      : num_chunks_(num_chunks), observer_(std::move(observer)) {}

  void OnPush(Step step, SteadyTime ready);
  void OnApplied(Step step, SteadyTime applied, const PhaseTimes& phases);

 private:
  const uint64_t num_chunks_;
  const Observer observer_;
  std::optional<Step> step_;
  SteadyTime first_ready_;
  uint64_t chunks_back_ = 0;
  std::optional<SteadyTime> last_end_;
};

}  // namespace pushpull
