// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/lasting_session.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

LastingSession::LastingSession(LastingSessionOptions options,
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
      pace_(options.retry_first, options.retry_longest) {
  Connect();
}

LastingSession::~LastingSession() {
  executor_.Cancel(retry_);
}

void LastingSession::Connect() {
  session_.reset();
  ++generation_;
  session_ = connector_.Connect(executor_, *this);
  session_->Send(registration_(promised_));
}

void LastingSession::Send(FromMember message) {
  // Before the first Welcome messages queue behind the registration; later they would reach a
  // coordinator that may be none.
  if (is_open_ || promised_ == Term{}) return session_->Send(std::move(message));
  if (const auto* failure = std::get_if<Failure>(&message); failure != nullptr && !undelivered_)
    undelivered_ = *failure;
}

void LastingSession::OnMessage(ToMember message) {
  if (IsOutdated(message)) return;
  if (const auto* welcome = std::get_if<Welcome>(&message)) Welcomed(*welcome);
  is_over_ = is_over_ || std::holds_alternative<Stop>(message);
  if (!is_open_ && !is_over_) return;
  handler_.OnMessage(std::move(message));
}

// True: it is of a coordinator that has been superseded, which is sent away.
bool LastingSession::IsOutdated(const ToMember& message) {
  Term term = promised_;
  if (const auto* welcome = std::get_if<Welcome>(&message)) term = welcome->term;
  if (const auto* stop = std::get_if<Stop>(&message)) term = stop->term;
  if (term >= promised_) return false;
  const absl::Status why = absl::FailedPreconditionError(absl::StrCat("a coordinator of term ",
                                                                      term.value(),
                                                                      " has no say: term ",
                                                                      promised_.value(),
                                                                      " was promised"));
  executor_.Post([doomed = std::shared_ptr<Session>(std::move(session_))] {});
  log_.Warning("session refused", {{"why", why.message()}});
  TryAgain(why);
  return true;
}

void LastingSession::Welcomed(const Welcome& welcome) {
  if (promised_ != Term{} && !is_open_) {
    log_.Info("the coordinator is there again",
              {{"term", welcome.term.value()},
               {"after_seconds", ToSeconds(pace_.Lasted(executor_.Now()))}});
  }
  promised_ = welcome.term;
  patience_ = welcome.settings.coordinator_patience;
  is_open_ = true;
  pace_.Succeeded();
  if (undelivered_) session_->Send(*std::exchange(undelivered_, std::nullopt));
}

void LastingSession::OnClosed(const absl::Status& why) {
  if (is_over_ || promised_ == Term{}) {
    is_over_ = true;
    return handler_.OnClosed(why);
  }
  TryAgain(why);
}

void LastingSession::TryAgain(const absl::Status& why) {
  is_open_ = false;
  const SteadyTime now = executor_.Now();
  const Duration delay = pace_.Failed(now);
  if (pace_.Lasted(now) >= patience_) {
    is_over_ = true;
    return handler_.OnClosed(absl::UnavailableError(
        absl::StrCat(why.message(), "; none came back within ", ToSeconds(patience_), " s")));
  }
  if (pace_.is_warning_due()) {
    log_.Warning("no coordinator: steps go on, trying again",
                 {{"why", why.message()},
                  {"lost_seconds", ToSeconds(pace_.Lasted(now))},
                  {"give_up_seconds", ToSeconds(patience_)}});
  }
  executor_.Cancel(retry_);
  retry_ = executor_.RunAfter(delay, [this] { Connect(); });
}

}  // namespace pushpull
