// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc_control.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pushpull {

// The member's end; `is_open` is read and written on the member's executor only.
struct InprocControl::Link {
  Executor& executor;
  SessionHandler& handler;
  SessionEvents* events = nullptr;
  bool is_open = true;
  SteadyTime last_to_member;
  SteadyTime last_to_coordinator;
};

class InprocControl::InprocSession final : public Session {
 public:
  InprocSession(InprocControl& control, SessionId id, std::shared_ptr<Link> link)
      : control_(control), id_(id), link_(std::move(link)) {}
  ~InprocSession() override {
    link_->is_open = false;
    control_.End(id_, absl::UnavailableError("the member ended its session"));
  }
  void Send(FromMember message) override {
    if (!link_->is_open) return;
    control_.Tell(*link_, [id = id_, message = std::move(message)](SessionEvents& events) {
      events.OnMessage(id, message);
    });
  }

 private:
  InprocControl& control_;
  const SessionId id_;
  const std::shared_ptr<Link> link_;
};

void InprocControl::SetEvents(SessionEvents& events) {
  SetRoute([&events](const Executor&) { return &events; });
}

void InprocControl::Disconnect(SessionEvents& events) {
  CloseIf([&](const Link& link) { return link.events == &events; });
}

void InprocControl::CloseIf(const std::function<bool(const Link&)>& is_meant) {
  std::vector<SessionId> sessions;
  {
    MutexLock lock(mu_);
    for (const auto& [id, link] : links_) {
      if (is_meant(*link)) sessions.push_back(id);
    }
  }
  std::sort(sessions.begin(), sessions.end());
  for (const SessionId session : sessions) Close(session);
}

void InprocControl::Tell(Link& link, std::function<void(SessionEvents&)> call) {
  if (link.events == nullptr) return;
  coordinator_.RunAt(ArrivalAt(coordinator_, link.last_to_coordinator),
                     [events = link.events, call = std::move(call)] { call(*events); });
}

std::unique_ptr<Session> InprocControl::Connect(Executor& executor, SessionHandler& handler) {
  auto link = std::make_shared<Link>(Link{executor, handler, route_(executor)});
  SessionId id;
  {
    MutexLock lock(mu_);
    id = SessionId{next_++};
    if (link->events != nullptr) links_.emplace(id, link);
  }
  if (link->events == nullptr) {
    executor.RunAt(ArrivalAt(executor, link->last_to_member), [link] {
      if (std::exchange(link->is_open, false))
        link->handler.OnClosed(absl::UnavailableError("nobody answers"));
    });
  }
  return std::make_unique<InprocSession>(*this, id, std::move(link));
}

SteadyTime InprocControl::ArrivalAt(Executor& executor, SteadyTime& last) {
  const SteadyTime when = executor.Now() + (delay_ ? delay_() : Duration::zero());
  last = std::max(last, when);
  return last;
}

void InprocControl::CloseOf(const Executor& member) {
  CloseIf([&](const Link& link) { return &link.executor == &member; });
}

std::shared_ptr<InprocControl::Link> InprocControl::Find(SessionId session) {
  MutexLock lock(mu_);
  const auto it = links_.find(session);
  return it == links_.end() ? nullptr : it->second;
}

void InprocControl::Send(SessionId session, ToMember message) {
  const std::shared_ptr<Link> link = Find(session);
  if (link == nullptr) return;
  const SteadyTime when = ArrivalAt(link->executor, link->last_to_member);
  link->executor.RunAt(when, [link, message = std::move(message)] {
    if (link->is_open) link->handler.OnMessage(message);
  });
}

void InprocControl::Close(SessionId session) {
  const std::shared_ptr<Link> link = Find(session);
  if (link == nullptr) return;
  link->executor.RunAt(ArrivalAt(link->executor, link->last_to_member), [link] {
    if (std::exchange(link->is_open, false))
      link->handler.OnClosed(absl::UnavailableError("closed by the coordinator"));
  });
  End(session, absl::UnavailableError("closed by the coordinator"));
}

void InprocControl::End(SessionId session, const absl::Status& why) {
  std::shared_ptr<Link> link;
  {
    MutexLock lock(mu_);
    const auto it = links_.find(session);
    if (it == links_.end()) return;
    link = std::move(it->second);
    links_.erase(it);
  }
  Tell(*link, [session, why](SessionEvents& events) { events.OnClosed(session, why); });
}

}  // namespace pushpull
