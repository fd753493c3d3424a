// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_state.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

void Outbox::Send(ServerId server, ToMember message) {
  if (const auto* member = members_.Find(server)) Send(member->session, std::move(message));
}

void Outbox::Send(WorkerId worker, ToMember message) {
  if (const auto* member = members_.Find(worker)) Send(member->session, std::move(message));
}

void Outbox::Refuse(SessionId session, absl::Status why) {
  Warn(absl::StrCat("session refused: ", why.message()));
  Send(session, Stop{std::move(why), term_});
  Add(CloseSession{session});
}

void Outbox::SendToServers(const ToMember& message) {
  for (const auto& [id, server] : members_.servers()) Send(server.session, message);
}

void Outbox::SendToWorkers(const ToMember& message) {
  for (const auto& [id, worker] : members_.workers()) Send(worker.session, message);
}

}  // namespace pushpull
