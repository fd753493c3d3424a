// SPDX-License-Identifier: Apache-2.0
//
// A worker's membership in its job, as WorkerNode uses it: over servers (worker_member.h), or in a
// ring of workers (ring_member.h).
#pragma once

#include <memory>
#include <string>

#include "pushpull/deadline.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/membership/control.h"
#include "runtime/membership/reconnecting_session.h"
#include "runtime/membership/session.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/channel.h"
#include "runtime/worker/exchange_client.h"
#include "runtime/worker/group_port.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/registration.h"
#include "runtime/worker/worker_metrics.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

struct WorkerNodeOptions {
  std::string job;
  WorkerId worker;
  Incarnation incarnation;
  std::string metrics_address;  // for status output; may be empty
  std::string rack;             // rack of this host; empty: unknown
  Duration resend_after = std::chrono::seconds(2);
  // Codecs are bypassed where steps are faster without them, unless the job is deterministic.
  bool bypasses_codecs = false;
  // Mode AllReduce: where this worker accepts connections from the others; null: the job has
  // servers.
  std::shared_ptr<RankListener> ring = {};
  std::string ring_address = {};        // where they reach it
  const TlsFolder* ring_tls = nullptr;  // outlives the node; null: plain text
  bool ring_has_shm = false;            // shared memory with workers of the same host
  // spec.sync.localReduce: where the other workers of the group reach this one; null: it pushes
  // alone.
  std::shared_ptr<GroupPort> group_port = {};
  std::string node;        // this host, by which groups are formed
  FaultPoint fault_point;  // for tests
  ReconnectingSessionOptions session;
};

// How the worker registers with a coordinator, in this and in later sessions.
RegisterWorker RegistrationOf(const WorkerNodeOptions& options, Term promised, bool is_member);

// Dependencies of a worker; all of them outlive the node.
struct WorkerDependencies {
  Executor& executor;
  Transport& transport;
  SessionConnector& coordinator;
  WorkerMetrics& metrics;
};

// Thread-confined to its executor. Pending operations are done when the coordinator has confirmed
// them, or fail with the error that ended the job.
class JobMember {
 public:
  virtual ~JobMember() = default;

  // Connects; the operation is done when the coordinator's Welcome arrives. Must be called first.
  virtual void Open(std::shared_ptr<PendingOperation> joining) = 0;
  virtual void StartRegistration(std::shared_ptr<Registration> registration) = 0;
  // Starts the program's operations that may begin now.
  virtual void RunDue() = 0;
  virtual void StartExchange(std::shared_ptr<ExchangeOperation> operation) = 0;
  // The program has decided whether it pushes its state in a step (state_saves.h).
  virtual void OnStateDecided() {}
  // The process must end (Departure::RequestEnd).
  virtual void OnEndRequested() = 0;
  // The worker leaves before step `end_step`.
  virtual void SendLeave(std::shared_ptr<PendingOperation> leaving,
                         Step end_step,
                         bool is_early) = 0;
  // Only after Open.
  virtual void Share(std::shared_ptr<const SharedMemory> memory) = 0;
  virtual WorkerStatistics& statistics() = 0;
};

}  // namespace pushpull
