// SPDX-License-Identifier: Apache-2.0
//
// Blocking collectives and messages of a worker's program. Each is one exchange, two if its pieces
// depend on who takes part, or two at once for a worker that sends and receives.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pushpull/collectives.h"

#include "runtime/base/mutex.h"
#include "runtime/worker/worker_node.h"

namespace pushpull {

// Thread-safe.
class WorkerCollectives final : public Collectives {
 public:
  // `node` outlives the calls.
  explicit WorkerCollectives(WorkerNode& node) : node_(node) {}

  void UseStep(std::optional<Step> step) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<WorkerId>> Barrier(Deadline deadline) override;
  absl::StatusOr<std::vector<WorkerId>> AllReduce(ArrayValues values,
                                                  Reduction reduction,
                                                  Deadline deadline) override;
  absl::StatusOr<GatheredValues> AllGather(ConstArrayValues values, Deadline deadline) override;
  absl::StatusOr<std::vector<WorkerId>> Broadcast(ArrayValues values,
                                                  std::optional<WorkerId> root,
                                                  Deadline deadline) override;
  absl::Status Send(const OutgoingMessage& message, Deadline deadline) override;
  absl::StatusOr<ReceivedMessage> Recv(const ExpectedMessage& message, Deadline deadline) override;
  absl::StatusOr<ReceivedMessage> SendRecv(const OutgoingMessage& outgoing,
                                           const ExpectedMessage& expected,
                                           Deadline deadline) override;

 private:
  using Operation = std::shared_ptr<ExchangeOperation>;

  // One part of what a call exchanges.
  struct Part {
    ExchangeSpec spec;
    std::span<const std::byte> values;
    std::string label = {};
  };
  // A call whose result has not been returned yet.
  struct Call {
    std::vector<ExchangeSpec> specs;    // one per part
    std::vector<Operation> operations;  // the exchanges under way, one per part
  };

  // A call with one part.
  absl::StatusOr<Operation> Run(const ExchangeSpec& spec,
                                std::span<const std::byte> values,
                                Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when all parts are done.
  absl::StatusOr<std::vector<Operation>> Run(const std::vector<Part>& parts, Deadline deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Begins the call, or continues one that has timed out.
  absl::StatusOr<Call> Enter(const std::vector<Part>& parts) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Call> Begin(const std::vector<Part>& parts, Step step);
  Part PartOf(const OutgoingMessage& message) const;
  Part PartOf(const ExpectedMessage& message) const;
  // The call ends, or is continued later.
  void Exit(std::optional<Call> call) ABSL_LOCKS_EXCLUDED(mu_);

  WorkerNode& node_;
  Mutex mu_;
  bool is_busy_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Call> unfinished_ ABSL_GUARDED_BY(mu_);
  std::optional<Step> step_ ABSL_GUARDED_BY(mu_);  // chosen by the program
};

}  // namespace pushpull
