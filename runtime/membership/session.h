// SPDX-License-Identifier: Apache-2.0
//
// Sessions without their transport: one ordered, two-way stream between a member and the
// coordinator for the member's whole life. A session that ends is the first sign of a death.
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

// Told what happens on its session, always on the executor given to Connect.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void OnMessage(ToMember message) = 0;
  // The session is over; `why` names the coordinator's address. Called once, nothing follows. Not
  // called after the owner destroyed the session.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// Thread-confined to its executor. Destroying it ends the session.
class Session {
 public:
  virtual ~Session() = default;
  // Queues a message; never blocks. Messages arrive in order. Dropped once the session is closed.
  virtual void Send(FromMember message) = 0;
};

class SessionConnector {
 public:
  virtual ~SessionConnector() = default;
  // Starts a session; returns at once. A coordinator that cannot be reached is reported by OnClosed
  // with kUnavailable. `handler` outlives the session. Called on `executor`.
  virtual std::unique_ptr<Session> Connect(Executor& executor, SessionHandler& handler) = 0;
};

// ---- the coordinator's end ----

using SessionId = Id<struct SessionTag, uint64_t>;  // never used twice by one coordinator

// Told what members send, always on the coordinator's executor.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  virtual void OnMessage(SessionId session, FromMember message) = 0;
  // Also called for a session that ended before its first message.
  virtual void OnClosed(SessionId session, const absl::Status& why) = 0;
  virtual JobStatus GetStatus() = 0;
  // The job shall have this size. Why not, where it cannot.
  virtual absl::Status Resize(const JobSize& size) = 0;
  // Saves a checkpoint; its number, by which JobStatus::checkpoint says when it has ended. Why not,
  // where it cannot.
  virtual absl::StatusOr<uint64_t> SaveCheckpoint() = 0;
  // Likewise the mode.
  virtual absl::Status SetMode(const ModeChange& change) = 0;
};

// Thread-safe. Messages to a session that is closed are dropped.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(SessionId session, ToMember message) = 0;
  // Ends the session after what was sent before; OnClosed still follows.
  virtual void Close(SessionId session) = 0;
};

}  // namespace pushpull
