// SPDX-License-Identifier: Apache-2.0
//
// Drives a JobCore by hand, message by message, and keeps what it wants to be done.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/coordinator/job_core.h"

namespace pushpull {

class JobCoreDriver {
 public:
  explicit JobCoreDriver(JobCoreOptions options) : core_(std::move(options)) {}

  void Receive(SessionId session, const FromMember& message) {
    Take(core_.OnMessage(now_, session, message));
  }
  void Close(SessionId session) {
    Take(core_.OnClosed(now_, session, absl::UnavailableError("reset by peer")));
  }
  void Tick(Duration later) {
    now_ += later;
    Take(core_.OnTick(now_));
  }
  void Take(std::vector<Command> commands) {
    for (Command& command : commands) commands_.push_back(std::move(command));
  }

  // The last message of this type to this session since commands_ was cleared.
  template <typename Message>
  std::optional<Message> Sent(SessionId session) const {
    std::optional<Message> last;
    for (const Command& command : commands_) {
      const auto* send = std::get_if<SendMessage>(&command);
      if (send == nullptr || send->session != session) continue;
      if (const auto* message = std::get_if<Message>(&send->message)) last = *message;
    }
    return last;
  }
  bool IsClosed(SessionId session) const {
    return std::any_of(commands_.begin(), commands_.end(), [&](const Command& command) {
      const auto* close = std::get_if<CloseSession>(&command);
      return close != nullptr && close->session == session;
    });
  }
  // Why the coordinator is to end; empty: it goes on.
  std::string SteppedDown() const {
    for (const Command& command : commands_) {
      if (const auto* step_down = std::get_if<StepDown>(&command)) return step_down->why;
    }
    return "";
  }
  // The lines for the log, one below the other.
  std::string Said() const {
    std::string said;
    for (const Command& command : commands_) {
      if (const auto* line = std::get_if<Announce>(&command)) said += line->text + "\n";
    }
    return said;
  }
  JobStatus Status() const { return core_.Status(now_); }

 protected:
  SteadyTime now_{};
  JobCore core_;
  std::vector<Command> commands_;
};

}  // namespace pushpull
