// SPDX-License-Identifier: Apache-2.0
//
// A member's session with whichever coordinator is in charge. When it breaks, the member goes on
// and this connects again; a coordinator of a lower term than one promised before is sent away.
//
//   connecting --1 Welcome--> open --3 broken--> lost --4 Welcome--> open
//       |                      |                  |
//       2 broken               5 Stop             6 too long
//       +----------> over <----+------------------+
//
// 1, 4 Of a term not below the promised one, which it raises. A lower one: that session is closed,
//      and the member tries on.
// 2    Nobody was there from the beginning: reported at once.
// 3    The owner is not told; what it sends meanwhile is dropped, except for a Failure.
// 5    The job has ended, or has no place for this member.
// 6    No coordinator came back within the patience that the last one's Welcome asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/base/retry_pace.h"
#include "runtime/membership/session.h"

namespace pushpull {

struct LastingSessionOptions {
  Duration retry_first = std::chrono::milliseconds(50);
  Duration retry_longest = std::chrono::seconds(1);
};

// Thread-confined to its executor.
class LastingSession final : public Session, private SessionHandler {
 public:
  // The first message of each session, which says who the member is and what it has promised.
  using Registration = std::function<FromMember(Term promised)>;

  // Connects at once. `connector`, `executor` and `handler` outlive this object. The handler is not
  // told of what a coordinator of a lower term says; OnClosed is called once, at the end.
  LastingSession(LastingSessionOptions options,
                 SessionConnector& connector,
                 Executor& executor,
                 SessionHandler& handler,
                 Registration registration,
                 Log log);
  ~LastingSession() override;

  void Send(FromMember message) override;

  // What is sent now reaches a coordinator.
  bool is_open() const { return is_open_; }
  // Highest term of any Welcome taken; 0 before the first.
  Term promised() const { return promised_; }
  // Rises with each session: an answer that was asked for in an earlier one must not go to this.
  uint64_t generation() const { return generation_; }

 private:
  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  void Connect();
  bool IsOutdated(const ToMember& message);
  void Welcomed(const Welcome& welcome);
  void TryAgain(const absl::Status& why);

  SessionConnector& connector_;
  Executor& executor_;
  SessionHandler& handler_;
  const Registration registration_;
  const Log log_;
  Term promised_;
  uint64_t generation_ = 0;
  bool is_open_ = false;
  bool is_over_ = false;  // a Stop has come: nothing follows
  std::optional<Failure> undelivered_;
  RetryPace pace_;
  Duration patience_{0};  // of the last Welcome
  Executor::TimerId retry_ = 0;
  std::unique_ptr<Session> session_;
};

}  // namespace pushpull
