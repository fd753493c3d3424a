// SPDX-License-Identifier: Apache-2.0
//
// A member's session with the current coordinator. It reconnects after a broken connection while
// the member continues, and rejects a coordinator with a term below the promised one.
//
//   connecting --1 Welcome--> open --3 broken--> lost --4 Welcome--> open
//       |                      |                  |
//       2 timeout              5 Stop             6 timeout
//       +----------> over <----+------------------+
//
// 1, 4 The Welcome's term is at least the promised one, which it raises. With a lower term the
//      session is closed and the member retries.
// 2    No coordinator answered within first_timeout. Until then every failure to reach one is
//      retried: a name that does not resolve, a closed port, an interrupted handshake. A peer that
//      answers with a refusal, or cannot be understood, ends the search.
// 3    The handler is not notified. Messages sent meanwhile are dropped, except for a Failure.
// 5    The job has ended, or has no place for this member.
// 6    No coordinator came back within the coordinator_timeout of the last Welcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/base/retry_pace.h"
#include "runtime/membership/session.h"

namespace pushpull {

struct ReconnectingSessionOptions {
  Duration retry_first = std::chrono::milliseconds(50);
  Duration retry_longest = std::chrono::seconds(1);
  // How long, from the first failure on, to search for a coordinator that sends the first Welcome.
  Duration first_timeout{0};
  double jitter = 0;  // of retries, 0 to 1 (RetryPace)
};

// Thread-confined to its executor.
class ReconnectingSession final : public Session, private SessionHandler {
 public:
  // Creates the first message of each session, with the member's identity and its promised term.
  using Registration = std::function<FromMember(Term promised)>;

  // Connects at once. `connector`, `executor` and `handler` outlive this object. The handler gets
  // no message from a coordinator with a lower term; OnClosed is called once, at the end.
  ReconnectingSession(ReconnectingSessionOptions options,
                      SessionConnector& connector,
                      Executor& executor,
                      SessionHandler& handler,
                      Registration registration,
                      Log log);
  ~ReconnectingSession() override;

  void Send(FromMember message) override;

  // A coordinator has sent Welcome. If not, Send drops all messages but a Failure, except before
  // the first Welcome, when it queues them.
  bool is_open() const { return is_open_; }
  // Highest term of an accepted Welcome; 0 before the first.
  Term promised() const { return promised_; }
  // Rises with each session: an answer to a request from an earlier session must not be sent on
  // this one.
  uint64_t generation() const { return generation_; }

 private:
  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  void Connect();
  bool IsOutdated(const ToMember& message);
  void OnWelcome(const Welcome& welcome);
  void Retry(const absl::Status& why);

  SessionConnector& connector_;
  Executor& executor_;
  SessionHandler& handler_;
  const Registration registration_;
  const Log log_;
  Term promised_;
  uint64_t generation_ = 0;
  bool is_open_ = false;
  bool is_over_ = false;           // Stop received or OnClosed called
  std::vector<FromMember> early_;  // sent before the first Welcome
  std::optional<Failure> undelivered_;
  RetryPace pace_;
  Duration timeout_;  // first_timeout, then coordinator_timeout of the last Welcome
  Executor::TimerId retry_ = 0;
  std::unique_ptr<Session> session_;
};

}  // namespace pushpull
