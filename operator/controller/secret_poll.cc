// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/secret_poll.h"

#include <set>
#include <string>

#include "operator/children/tls_secret.h"

namespace pushpull_operator {
namespace {

ObjectKey SecretOf(const Stored<TrainingJobObject>& job) {
  const ObjectKey& key = job.meta.key;
  return {.object_namespace = key.object_namespace,
          .name = TlsSecretName(key.name, job.value.job.spec.security)};
}

}  // namespace

bool HasOwnSecret(const Stored<TrainingJobObject>& job) {
  const std::optional<Phase> phase = job.value.status.phase;
  const bool has_members =
      phase == Phase::kStarting || phase == Phase::kRunning || phase == Phase::kScaling;
  const bool is_readable = job.value.unreadable.empty() && job.value.problems.empty();
  return has_members && is_readable && !job.meta.is_deleting &&
         job.value.job.spec.security.secret_name.empty() && !SecretOf(job).name.empty();
}

void SecretPoll::Run(const Cancellation& cancellation) {
  while (!cancellation.is_cancelled()) {
    const pushpull::SteadyTime next = time_.Now() + pace_.period;
    LookOnce(cancellation);
    if (!time_.PauseUntil(next, cancellation)) return;
  }
}

void SecretPoll::LookOnce(const Cancellation& cancellation) {
  std::set<ObjectKey> secrets;
  for (const JobStore::Pointer& job : jobs_.All()) {
    if (!HasOwnSecret(*job)) continue;
    const auto [secret, is_new] = secrets.insert(SecretOf(*job));
    LookUp(*job, *secret);
    if (!time_.PauseUntil(time_.Now() + pace_.pause, cancellation)) return;
  }
  children_.RetainSecrets(secrets);
}

// An error says nothing about the Secret; the next lookup may.
void SecretPoll::LookUp(const Stored<TrainingJobObject>& job, const ObjectKey& secret) {
  const absl::StatusOr<ObjectMeta> found =
      client_.GetMeta(SecretType(), secret, client_.CallDeadline());
  if (!found.ok() && !absl::IsNotFound(found.status())) return;
  const std::string version = found.ok() ? VersionOf(*found) : "";
  children_.OnSecretSeen(secret, version, ToString(job.meta.key));
}

}  // namespace pushpull_operator
