// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_state.h"

#include <algorithm>

#include "absl/strings/cord.h"

#include "operator/kube/api_error.h"

namespace pushpull_operator {
namespace {

constexpr char kUsersMistake[] = "pushpull.dev/users-mistake";

}  // namespace

void Expectations::ExpectUpdate(const std::string& replaced, WallTime now) {
  replaced_version_ = replaced;
  expires_at_ = now + kTimeout;
}

void Expectations::ExpectPod(const ObjectMeta& created, WallTime now) {
  created_pods_[created.key.name] = created.uid;
  expires_at_ = now + kTimeout;
}

bool Expectations::AreMet(const ObservedJob& job) {
  for (const PodStore::Pointer& pod : job.pods) {
    const auto created = created_pods_.find(pod->meta.key.name);
    if (created != created_pods_.end() && created->second == pod->meta.uid)
      created_pods_.erase(created);
  }
  if (job.now >= expires_at_) {
    created_pods_.clear();
    replaced_version_.clear();
  }
  return created_pods_.empty() && job.meta().resource_version != replaced_version_;
}

void CoordinatorBackoff::OnTimeout(const std::string& pod_uid, WallTime now) {
  pause_ = pod_uid == silent_uid_ ? std::min(2 * pause_, kPauseMax) : kPauseMin;
  silent_uid_ = pod_uid;
  ask_at_ = now + pause_;
}

void CreationState::Begin(int64_t term) {
  if (term > 0) unused_term_ = term;
}

void CreationState::End(const absl::Status& created, int64_t term) {
  if (absl::IsPermissionDenied(created)) Begin(term);
  obstacle_ = ObstacleOf(created);
  if (absl::IsInvalidArgument(created)) refusal_ = std::string(created.message());
}

std::optional<EventWrite> EventHistory::Record(const Event& event,
                                               const std::string& name,
                                               WallTime now) {
  std::erase_if(times_, [now](WallTime time) { return time + std::chrono::minutes(1) <= now; });
  std::erase_if(recorded_,
                [now](const Recorded& recorded) { return recorded.last + kSameFor <= now; });
  if (times_.size() >= kWritesAMinute) return std::nullopt;
  auto same = std::ranges::find(recorded_, event, &Recorded::event);
  if (same == recorded_.end())
    same = recorded_.insert(recorded_.end(), {.event = event, .name = name});
  ++same->count;
  same->last = now;
  times_.push_back(now);
  return EventWrite{.name = same->name, .count = same->count};
}

std::optional<Obstacle> ObstacleOf(const absl::Status& created) {
  const char* reason = absl::IsAlreadyExists(created)      ? "NameConflict"
                       : absl::IsPermissionDenied(created) ? "Forbidden"
                                                           : nullptr;
  if (reason == nullptr || IsAboutDeleted(created)) return std::nullopt;
  return Obstacle{.reason = reason, .message = std::string(created.message())};
}

absl::Status AsUsersMistake(absl::Status status) {
  status.SetPayload(kUsersMistake, absl::Cord());
  return status;
}

bool IsUsersMistake(const absl::Status& status) {
  return status.GetPayload(kUsersMistake).has_value();
}

bool IsAboutDeleted(const absl::Status& status) {
  const std::optional<ApiError> error = ApiErrorOf(status);
  if (!error) return false;
  // A 404 response without that reason is about a kind that the server does not know.
  return error->reason == "NotFound" ||
         std::ranges::count(error->causes, "NamespaceTerminating", &ErrorCause::reason) > 0;
}

}  // namespace pushpull_operator
