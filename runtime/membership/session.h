// SPDX-License-Identifier: Apache-2.0
//
// Sessions, independent of the transport: one ordered, two-way stream between a member and the
// coordinator for the member's whole life. The end of a session is the first sign of a failure.
// Implementations: session_client.cc and session_service.cc over gRPC, tests/fakes/inproc_control.h
// in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// ---- the member's end ----

// Callbacks of a session, always on the executor given to Connect.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void OnMessage(ToMember message) = 0;
  // The session is over; `why` names the coordinator's address. Called once, as the last callback;
  // not called after the owner destroyed the session.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// Thread-confined to its executor. Destroying it ends the session.
class Session {
 public:
  virtual ~Session() = default;
  // Queues a message; never blocks. Messages arrive in order; they are dropped once the session is
  // closed.
  virtual void Send(FromMember message) = 0;
};

class SessionConnector {
 public:
  virtual ~SessionConnector() = default;
  // Starts a session; returns at once. An unreachable coordinator is reported by OnClosed with
  // kUnavailable. `handler` outlives the session. Called on `executor`.
  virtual std::unique_ptr<Session> Connect(Executor& executor, SessionHandler& handler) = 0;
};

// ---- the coordinator's end ----

using SessionId = Id<struct SessionTag, uint64_t>;  // unique within one coordinator

// Callbacks of all sessions, always on the coordinator's executor.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  virtual void OnMessage(SessionId session, FromMember message) = 0;
  // Also called for a session that closes before its first message.
  virtual void OnClosed(SessionId session, const absl::Status& why) = 0;
  virtual JobStatus GetStatus() = 0;
  // The same, for a command that asks again until the job has the awaited state or is over.
  // `waiter` is a random number chosen by the command; 0: it asks once.
  virtual JobStatus AnswerWaiter(uint64_t /*waiter*/) { return GetStatus(); }
  // Changes the desired size, or says why it cannot.
  virtual absl::Status Resize(const JobSize& size) = 0;
  // Starts a checkpoint and returns its number (see CheckpointStatus), or says why it cannot.
  virtual absl::StatusOr<uint64_t> SaveCheckpoint() = 0;
  // Starts a change of the mode, or says why it cannot.
  virtual absl::Status SetMode(const ModeChange& change) = 0;
  // Starts a trace and returns its number, or says why it cannot.
  virtual absl::StatusOr<uint64_t> StartTrace(const TraceRequest& request) = 0;
  // The parts of the trace so far, from part `from` on, or why there are none.
  virtual absl::StatusOr<TraceParts> TakeTrace(uint64_t number, uint64_t from) = 0;
};

// Thread-safe. Messages to a closed session are dropped.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(SessionId session, ToMember message) = 0;
  // Closes the session after sending what is queued; OnClosed still follows.
  virtual void Close(SessionId session) = 0;
};

}  // namespace pushpull
