// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_healer.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/strings/str_cat.h"

#include "operator/children/tls_secret.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using std::chrono::seconds;

// An operator that has just started checks the objects of all jobs within this time, not at once.
constexpr uint64_t kFirstChecks = 600;  // seconds

WallTime FirstCheckOf(const ObservedJob& job) {
  const uint64_t spread = std::hash<std::string>()(job.meta().uid) % kFirstChecks;
  return job.now + seconds(static_cast<int64_t>(spread));
}

bool IsDue(WallTime when, WallTime now, Healed& healed) {
  if (when <= now) return true;
  healed.again_at = std::min(healed.again_at.value_or(when), when);
  return false;
}

std::string NoteOf(const std::string& what, const std::string& seen) {
  return absl::StrCat(what,
                      seen.empty() ? " was deleted by somebody else and is there again"
                                   : " was changed by somebody else and is as it was again");
}

}  // namespace

absl::Status JobHealer::Heal(const ObservedJob& job, JobState& state, Healed& healed) {
  state.heal_obstacle.reset();
  absl::Status first;
  for (const JobObject& object : maker_.ObjectsOf(job.meta(), job.object())) {
    if (object.text.empty()) continue;
    const absl::Status done = HealObject(object, job, state, healed);
    if (!done.ok()) state.heal_obstacle = ObstacleOf(done);
    first.Update(done);
  }
  first.Update(HealSecret(job, state, healed));
  return first;
}

absl::Status JobHealer::HealObject(const JobObject& object,
                                   const ObservedJob& job,
                                   JobState& state,
                                   Healed& healed) {
  const std::string& kind = object.type.plural;
  const std::string seen = children_.Find(object.type, object.key).value_or("");
  const std::optional<WallTime> when =
      state.children.WriteAt(kind, seen, job.now, FirstCheckOf(job));
  if (!when || !IsDue(*when, job.now, healed)) return absl::OkStatus();
  const std::string left = state.children.LeftAs(kind);
  PUSHPULL_ASSIGN_OR_RETURN(const std::string written, Ensure(object, job, state));
  // In the second case it was there all the time, but the cache was very late.
  if (written == seen || (seen.empty() && written == left)) return absl::OkStatus();
  state.children.OnHealed(kind, job.now);
  healed.notes[kind] = NoteOf(absl::StrCat(kind, " ", object.key.name), seen);
  return absl::OkStatus();
}

absl::Status JobHealer::HealSecret(const ObservedJob& job, JobState& state, Healed& healed) {
  CertificateState& certificates = state.certificates;
  const std::string& kind = SecretType().plural;
  const bool is_own = job.object().job.spec.security.secret_name.empty() &&
                      !certificates.secret.empty() && certificates.secret == job.Secret();
  if (!is_own) return absl::OkStatus();
  const std::optional<std::string> seen = children_.Find(
      SecretType(), {.object_namespace = job.key().object_namespace, .name = certificates.secret});
  if (!seen || *seen == certificates.version) return absl::OkStatus();
  if (!IsDue(state.children.HealAt(kind), job.now, healed)) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(keeper_.Refresh(job, {}, certificates));
  if (certificates.version == *seen) return absl::OkStatus();
  state.children.OnHealed(kind, job.now);
  healed.notes[kind] = NoteOf(absl::StrCat(kind, " ", certificates.secret), *seen);
  return absl::OkStatus();
}

absl::Status JobHealer::HealPod(const HealLabels& heal,
                                const ObservedJob& job,
                                JobState& state,
                                Healed& healed) {
  const std::string name = PodName(job.key().name, heal.member);
  if (!IsDue(state.children.HealAt(name), job.now, healed)) return absl::OkStatus();
  state.children.OnHealed(name, job.now);
  const absl::Status done = maker_.HealLabels(job.meta(), heal.member, heal.uid);
  if (absl::IsNotFound(done) || absl::IsAborted(done)) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(done);
  healed.notes[name] = absl::StrCat(
      "labels of pod ", name, " were changed by somebody else and are as they were again");
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobHealer::Ensure(const JobObject& object,
                                              const ObservedJob& job,
                                              JobState& state) {
  const std::string seen = children_.Find(object.type, object.key).value_or("");
  PUSHPULL_ASSIGN_OR_RETURN(std::string written, maker_.EnsureObject(job.meta(), object));
  state.children.OnWritten(object.type.plural, seen, written, job.now);
  return written;
}

}  // namespace pushpull_operator
