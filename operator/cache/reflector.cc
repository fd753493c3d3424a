// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflector.h"

#include <string>
#include <utility>

namespace pushpull_operator {
namespace {

using pushpull::Duration;

// A watch that lasted this long counts as progress even without events.
constexpr std::chrono::seconds kStableWatch{30};

}  // namespace

Reflector::Reflector(KubeClient& client,
                     PausingTime& time,
                     ObjectSink& sink,
                     ReflectorOptions options)
    : client_(client), time_(time), sink_(sink), options_(std::move(options)) {}

void Reflector::Run(const Cancellation& cancellation) {
  while (!cancellation.is_cancelled()) {
    const Duration pause =
        state_.step() == ReflectorState::Step::kList ? List() : Watch(cancellation);
    if (pause > Duration::zero() && !time_.PauseUntil(time_.Now() + pause, cancellation)) return;
  }
}

Duration Reflector::List() {
  const absl::StatusOr<std::string> version =
      client_.List(options_.type,
                   options_.selection,
                   sink_,
                   pushpull::Deadline(time_.Now() + options_.list_time));
  if (version.ok()) {
    sink_.EndListing();
    return state_.OnListed(*version);
  }
  const Duration pause = state_.OnListFailed(version.status(), Jitter(), time_.Now());
  ReportError(version.status());
  return pause;
}

Duration Reflector::Watch(const Cancellation& cancellation) {
  const auto extra = std::chrono::duration_cast<std::chrono::seconds>(
      pushpull::FromSeconds(pushpull::ToSeconds(options_.watch_time) * Jitter()));
  const pushpull::SteadyTime begin = time_.Now();
  const absl::Status status = client_.Watch(
      options_.type,
      {.selection = options_.selection,
       .resource_version = state_.version(),
       .duration = options_.watch_time + extra},
      [this](WatchEvent event) { return Take(std::move(event)); },
      cancellation);
  if (time_.Now() - begin >= kStableWatch) state_.OnProgress("");
  const Duration pause = state_.OnWatchEnded(status, Jitter(), time_.Now());
  if (!status.ok() && !absl::IsOutOfRange(status)) ReportError(status);
  return pause;
}

absl::Status Reflector::Take(WatchEvent event) {
  state_.OnProgress(event.object.meta.resource_version);
  switch (event.type) {
    case WatchEventType::kAdded:
    case WatchEventType::kModified:
      sink_.Apply(std::move(event.object));
      break;
    case WatchEventType::kDeleted:
      sink_.Remove(std::move(event.object));
      break;
    case WatchEventType::kBookmark:
    case WatchEventType::kError:
    case WatchEventType::kUnknown:
      break;
  }
  return absl::OkStatus();
}

void Reflector::ReportError(const absl::Status& status) const {
  if (absl::IsCancelled(status) || !state_.is_warning_due()) return;
  if (options_.on_error) options_.on_error(status);
}

}  // namespace pushpull_operator
