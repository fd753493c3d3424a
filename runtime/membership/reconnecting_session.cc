// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/reconnecting_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Whether the error may not be the coordinator's own: the next attempt may meet another peer, or a
// better network. gRPC uses some of these codes, kUnknown and kInternal among them, for broken
// streams.
bool MayPass(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

}  // namespace

ReconnectingSession::ReconnectingSession(ReconnectingSessionOptions options,
                                         SessionConnector& connector,
                                         Executor& executor,
                                         SessionHandler& handler,
                                         Registration registration,
                                         Log log)
    : connector_(connector),
      executor_(executor),
      handler_(handler),
      registration_(std::move(registration)),
      log_(std::move(log)),
      pace_(options.retry_first, options.retry_longest, options.jitter),
      timeout_(options.first_timeout) {
  Connect();
}

ReconnectingSession::~ReconnectingSession() {
  executor_.Cancel(retry_);
}

void ReconnectingSession::Connect() {
  session_.reset();
  ++generation_;
  session_ = connector_.Connect(executor_, *this);
  session_->Send(registration_(promised_));
  for (const FromMember& message : early_) session_->Send(message);
}

void ReconnectingSession::Send(FromMember message) {
  // Before the first Welcome, messages queue behind the registration and are kept for whichever
  // coordinator sends it. Later they wait for the Welcome of each session: until then the
  // coordinator's term may be too low.
  if (promised_ == Term{}) early_.push_back(message);
  if (is_open_ || promised_ == Term{}) return session_->Send(std::move(message));
  if (const auto* failure = std::get_if<Failure>(&message); failure != nullptr && !undelivered_)
    undelivered_ = *failure;
}

void ReconnectingSession::OnMessage(ToMember message) {
  if (IsOutdated(message)) return;
  if (const auto* welcome = std::get_if<Welcome>(&message)) OnWelcome(*welcome);
  is_over_ = is_over_ || std::holds_alternative<Stop>(message);
  if (!is_open_ && !is_over_) return;
  handler_.OnMessage(std::move(message));
}

// True: the message is from a superseded coordinator, whose session is closed.
bool ReconnectingSession::IsOutdated(const ToMember& message) {
  Term term = promised_;
  if (const auto* welcome = std::get_if<Welcome>(&message)) term = welcome->term;
  if (const auto* stop = std::get_if<Stop>(&message)) term = stop->term;
  if (term >= promised_) return false;
  const absl::Status why = absl::FailedPreconditionError(absl::StrCat("a coordinator of term ",
                                                                      term.value(),
                                                                      " is outdated: term ",
                                                                      promised_.value(),
                                                                      " was promised"));
  // Not destroyed here: this runs in a callback of the session.
  executor_.Post([doomed = std::shared_ptr<Session>(std::move(session_))] {});
  log_.Warning("session refused", {{"why", why.message()}});
  Retry(why);
  return true;
}

void ReconnectingSession::OnWelcome(const Welcome& welcome) {
  if (promised_ != Term{} && !is_open_) {
    log_.Info("connected to a coordinator again",
              {{"term", welcome.term.value()},
               {"after_seconds", ToSeconds(pace_.Lasted(executor_.Now()))}});
  }
  promised_ = welcome.term;
  timeout_ = welcome.settings.coordinator_timeout;
  is_open_ = true;
  pace_.Succeeded();
  early_.clear();
  if (undelivered_) session_->Send(*std::exchange(undelivered_, std::nullopt));
}

void ReconnectingSession::OnClosed(const absl::Status& why) {
  const bool is_final = promised_ == Term{} && !MayPass(why);
  if (!is_over_ && !is_final) return Retry(why);
  is_over_ = true;
  handler_.OnClosed(why);
}

void ReconnectingSession::Retry(const absl::Status& why) {
  is_open_ = false;
  const SteadyTime now = executor_.Now();
  const Duration delay = pace_.Failed(now);
  const Duration left = timeout_ - pace_.Lasted(now);
  if (left <= Duration::zero()) {
    is_over_ = true;
    if (timeout_ == Duration::zero()) return handler_.OnClosed(why);
    const char* what = promised_ == Term{} ? "; none answered within " : "; none came back within ";
    return handler_.OnClosed(
        absl::UnavailableError(absl::StrCat(why.message(), what, ToSeconds(timeout_), " s")));
  }
  if (pace_.is_warning_due()) {
    log_.Warning(promised_ == Term{} ? "no coordinator yet, trying again"
                                     : "no coordinator: steps continue, reconnecting",
                 {{"why", why.message()},
                  {"lost_seconds", ToSeconds(pace_.Lasted(now))},
                  {"give_up_seconds", ToSeconds(timeout_)}});
  }
  executor_.Cancel(retry_);
  // The last attempt is made when the time is over, not later: the caller has a deadline.
  retry_ = executor_.RunAfter(std::min(delay, left), [this] { Connect(); });
}

}  // namespace pushpull
