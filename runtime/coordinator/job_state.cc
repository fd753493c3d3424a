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

void JobState::BeginAt(Step step) {
  step_before = std::exchange(reached, step);
  began_step = step;
  if (step_before > step) {
    steps_lost += step_before.value() - step.value();
    outbox.Warn(absl::StrCat("training begins at step ",
                             step.value(),
                             ", the job had reached step ",
                             step_before.value(),
                             ": the steps between are lost and made again"));
  } else if (step > Step{}) {
    outbox.Log(absl::StrCat("training resumes at step ", step.value()));
  }
}

}  // namespace pushpull
