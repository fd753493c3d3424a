// SPDX-License-Identifier: Apache-2.0
//
// Sessions inside one process: what gRPC does between processes, by posting to executors. Orders
// the messages of a session, loses none, may delay them, and can be cut to play the death of a
// member or of the coordinator.
#pragma once

#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/mutex.h"
#include "runtime/membership/session.h"

namespace pushpull {

// Thread-safe. Outlives the sessions and the coordinator that uses it.
class InprocControl final : public SessionConnector, public SessionSink {
 public:
  // Which coordinator a member reaches that connects now; null: nobody answers.
  using Route = std::function<SessionEvents*(const Executor& member)>;

  // `events` is used on `coordinator`; both outlive this object's last session.
  explicit InprocControl(Executor& coordinator) : coordinator_(coordinator) {}
  // From now on new sessions are with this coordinator.
  void SetEvents(SessionEvents& events);
  // From now on the route says with whom new sessions are. Called on any executor that connects.
  void SetRoute(Route route) { route_ = std::move(route); }
  // All sessions with this coordinator end, at both ends.
  void Disconnect(SessionEvents& events) ABSL_LOCKS_EXCLUDED(mu_);
  // How long each message takes from now on. Called on any executor that sends.
  void SetDelay(std::function<Duration()> delay) { delay_ = std::move(delay); }
  // The session of the member on this executor ends, at both ends.
  void CloseOf(const Executor& member) ABSL_LOCKS_EXCLUDED(mu_);

  std::unique_ptr<Session> Connect(Executor& executor, SessionHandler& handler) override;
  void Send(SessionId session, ToMember message) override;
  void Close(SessionId session) override;

 private:
  class InprocSession;
  struct Link;

  // When a message that is sent now arrives, after those before it.
  SteadyTime ArrivalAt(Executor& executor, SteadyTime& last);
  std::shared_ptr<Link> Find(SessionId session) ABSL_LOCKS_EXCLUDED(mu_);
  void End(SessionId session, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void CloseIf(const std::function<bool(const Link&)>& is_meant) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `call` on the coordinator's executor.
  void Tell(Link& link, std::function<void(SessionEvents&)> call);

  Executor& coordinator_;
  Route route_;
  std::function<Duration()> delay_;
  mutable Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<SessionId, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
