// SPDX-License-Identifier: Apache-2.0
//
// The worker's half of a ring (mode AllReduce, coordinator/ring_agreement.h): keeps the pushes of
// the step under way until all tensors are pushed, takes the step with the other workers, and
// repeats it in the next ring if a ring fails.
//
//   stopped --FormRing--> forming --connected, copied--> ready --all pushed--> stepping --> ready
//      ^                     |                             |                      |
//      +------StopRing-------+-----------------------------+----------------------+
//
// In forming and stepping, the ring thread works on the state, and nothing else touches it. A ready
// worker may also be copying its part of a checkpoint; the next step waits for that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/membership/control.h"
#include "runtime/ring/ring_links.h"
#include "runtime/ring/ring_state.h"
#include "runtime/ring/ring_thread.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/ring_saver.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

// Events of a RingClient, on its executor.
class RingClientObserver {
 public:
  virtual ~RingClientObserver() = default;
  // A message to send to the coordinator.
  virtual void OnRingMessage(FromMember message) = 0;
  // A step is taken, and the next one is `next`. The program is notified afterwards.
  virtual void OnRingStep(Step next) = 0;
  // So many finite values of the tensor are infinite in its type.
  virtual void OnRingOverflow(const TensorSpec& tensor, uint64_t values) = 0;
  // Sums of this size use the fastest algorithm from now on.
  virtual void OnRingTrial(const EndedRingTrial& ended) = 0;
  // Operations may have been answered.
  virtual void OnRingAnswered() = 0;
  // This worker cannot continue. kInvalidArgument: nor can any other.
  virtual void OnRingBroken(const absl::Status& why) = 0;
};

// Where and how a worker meets the others.
struct RingPlace {
  WorkerId self;
  RankListener listener;
  const TlsFolder* tls = nullptr;  // outlives the client; null: plain text
  bool has_shm = false;            // may use shared memory with workers on its host, without TLS
};

// Thread-confined to its executor, constructor and destructor included.
class RingClient {
 public:
  // All references outlive this object.
  RingClient(RingPlace place,
             Executor& executor,
             WorkerStatistics& statistics,
             RingClientObserver& observer);

  // Once, before the first request. kResourceExhausted: no memory.
  absl::Status SetTensors(const std::vector<PlacedTensor>& tensors);
  // The pending operation is done when the values have arrived. A second push of a tensor in one
  // step fails with kFailedPrecondition.
  void Start(const TensorRequest& request);
  // Sets the samples per step, from the next one on; 0: unchanged.
  void SetBatch(uint64_t batch) { batch_ = batch; }

  // This worker's part of a checkpoint: sent with OnRingMessage once it is written.
  void OnCapture(const Capture& order);
  void OnEndCapture(uint64_t attempt) { saver_.End(attempt); }

  // In rings formed from now on.
  void TryAlgorithms() { tries_algorithms_ = true; }

  void OnStop(const StopRing& message);
  void OnForm(const FormRing& message);

  // Fails every request with `why`, now and from now on.
  void FailAll(const absl::Status& why);

  // The number of the next step.
  Step step() const { return mark_.step; }

 private:
  struct Push {
    TensorRequest request;
    bool is_there = false;
  };

  bool is_busy() const { return thread_.is_busy(); }
  void AddPush(const TensorRequest& request);
  bool IsIncluded(const RingMark& mark) const;
  void TakeStepIfPushed();
  // The values with which a job begins: initial ones, or a checkpoint's.
  absl::Status BeginState();
  void OnFormed(const absl::Status& status);
  void OnStepTaken(const absl::Status& status);
  // Starts to copy this worker's part of the checkpoint that is due. False: none is.
  bool CopyIfDue();
  // Called after every task: handles what had to wait for it. True: nothing else must be done.
  bool Settle();
  void ReportStopped();
  void ReportFailed(const absl::Status& why);
  void WriteValue(size_t tensor, std::span<std::byte> target);
  void FinishPushes();
  void AnswerReads();
  void Observe();
  void FailNow();

  const RingPlace place_;
  Executor& executor_;
  WorkerStatistics& statistics_;
  RingClientObserver& observer_;
  std::optional<RingState> state_;
  RingMark mark_;            // the state's, readable while the state is in use
  bool has_values_ = false;  // the job's, not only this worker's own
  bool has_begun_ = false;   // it has had them before
  std::vector<Push> pushes_;
  size_t num_pushed_ = 0;
  std::vector<TensorRequest> reads_;
  uint64_t batch_ = 0;
  bool tries_algorithms_ = false;
  Epoch asked_;                   // by the newest StopRing
  bool must_stop_ = false;        // that StopRing is not answered yet
  std::optional<FormRing> form_;  // the ring being formed, or in place
  std::vector<Epoch> tried_in_;   // the rings in place since the last step
  bool is_ready_ = false;
  std::unique_ptr<RingLinks> ring_;
  absl::Status failed_;
  SteadyTime first_ready_;  // when the step's first push was ready
  std::optional<SteadyTime> last_end_;
  uint64_t bytes_sent_ = 0;  // by ring_, as counted so far
  RingSaver saver_;
  absl::StatusOr<StatePart> part_;  // being copied
  PosixFileSystem files_;
  absl::Status begun_;  // why this worker could not begin with the job's values
  RingThread thread_;   // last: its task uses the others
};

}  // namespace pushpull
