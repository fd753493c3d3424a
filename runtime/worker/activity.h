// SPDX-License-Identifier: Apache-2.0
//
// What a worker's program is currently doing, as far as the library can tell, and since when. Stall
// messages use it to describe a worker that others wait for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/worker/exchange_client.h"
#include "runtime/worker/request_table.h"

namespace pushpull {

// Thread-confined to the worker's executor. Each event takes constant time and allocates nothing.
class ActivityWatch {
 public:
  ActivityWatch(WorkerId worker, SteadyTime now) : worker_(worker), since_(now) {}

  // The job's tensors, for their names.
  void SetTensors(const std::vector<PlacedTensor>& tensors);
  // The values are in place, or the mode has changed: the program computes.
  void OnBegun(SteadyTime now);
  // The program has pushed or pulled a tensor.
  void OnRequest(const TensorRequest& request, SteadyTime now);
  void OnExchange(const std::shared_ptr<ExchangeOperation>& operation, SteadyTime now);
  // A chunk has been answered.
  void OnAnswered(SteadyTime now) { answered_at_ = now; }
  void OnHeld(SteadyTime now) { EnterPhase(WorkerPhase::kChangingMode, now); }
  void OnLeaving(SteadyTime now) { EnterPhase(WorkerPhase::kLeaving, now); }

  // `step`: the step under way, as the program counts. Linear in the number of chunks.
  WorkerActivity Current(const RequestTable& chunks, Step step, SteadyTime now) const;

 private:
  void EnterPhase(WorkerPhase phase, SteadyTime now);
  // Mode AllReduce: the step that is pushed is not done.
  bool IsInRing(const RequestTable& chunks) const;
  std::optional<WorkerId> PeerOf(const ExchangeSpec& spec) const;

  const WorkerId worker_;
  std::vector<std::string> tensors_;           // names
  WorkerPhase phase_ = WorkerPhase::kJoining;  // kComputing stands for all later ones
  SteadyTime since_;
  Step pushed_step_;         // on the wire, of the newest push
  size_t pushed_count_ = 0;  // tensors of that step
  size_t pushed_tensor_ = 0;
  SteadyTime pushed_at_;
  size_t pulled_tensor_ = 0;
  SteadyTime pulled_at_;
  SteadyTime answered_at_;
  std::weak_ptr<const ExchangeOperation> exchange_;
  SteadyTime exchanged_at_;
};

}  // namespace pushpull
