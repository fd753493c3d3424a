// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/certificate_keeper.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/children/tls_secret.h"
#include "operator/controller/child_cache.h"
#include "operator/controller/object_maker.h"
#include "runtime/base/status_macros.h"
#include "runtime/tls/peer_identity.h"

namespace pushpull_operator {
namespace {

// A user's Secret is neither watched nor looked up: a change is noticed this late unless something
// else reads it.
constexpr std::chrono::hours kRecheckPeriod{1};
constexpr std::chrono::seconds kRereadPause{30};

// The operator's own files, for its calls.
struct OwnFiles {
  std::string authorities;
  KeyPair pair;
};

void Take(const ObjectMeta& secret, OwnFiles own, WallTime recheck_at, CertificateState& state) {
  state.secret = secret.key.name;
  state.version = VersionOf(secret);
  state.files = std::make_shared<const pushpull::TlsFiles>(
      pushpull::TlsFiles{.authorities = std::move(own.authorities),
                         .certificate = std::move(own.pair.certificate),
                         .private_key = std::move(own.pair.private_key)});
  state.recheck_at = recheck_at;
}

// Members with a pair: those that the spec asks for, that have a pod, or that get one next.
std::set<std::string> MembersWithCertificates(const ObservedJob& job,
                                              const std::vector<MemberId>& next) {
  const pushpull::TrainingJobSpec& spec = job.object().job.spec;
  std::set<std::string> members;
  const auto add = [&](const MemberId& member) {
    for (std::string& name : CertificateMembers(spec, member)) members.insert(std::move(name));
  };
  const auto add_all = [&](pushpull::JobRole role, int count) {
    for (int i = 0; i < count; ++i) add({.role = role, .index = i});
  };
  add({});
  add_all(pushpull::JobRole::kServer, spec.servers.replicas);
  add_all(pushpull::JobRole::kWorker, spec.workers.replicas);
  for (const PodStore::Pointer& pod : job.pods) {
    const std::optional<MemberId> member = MemberOfPod(job.key().name, pod->meta.key.name);
    if (member && pod->meta.controller_uid == job.meta().uid) add(*member);
  }
  for (const MemberId& member : next) add(member);
  return members;
}

}  // namespace

absl::Status CertificateKeeper::Refresh(const ObservedJob& job,
                                        const std::vector<MemberId>& next,
                                        CertificateState& state) {
  const ObjectKey secret{.object_namespace = job.key().object_namespace, .name = job.Secret()};
  absl::Status refreshed;
  if (secret.name.empty()) {
    state = {};
  } else if (job.object().job.spec.security.secret_name.empty()) {
    refreshed = EnsureOwn(job, secret, next, state);
  } else {
    refreshed = Read(secret, job.now, state);
  }
  const std::string why(refreshed.message());
  state.obstacle = ObstacleOf(refreshed);
  if (absl::IsNotFound(refreshed))
    state.obstacle = Obstacle{.reason = "SecretMissing", .message = why};
  if (absl::IsOutOfRange(refreshed))
    state.obstacle = Obstacle{.reason = "TooManyMembers", .message = why};
  const bool is_users = state.obstacle && !absl::IsPermissionDenied(refreshed);
  return is_users ? AsUsersMistake(refreshed) : refreshed;
}

absl::Status CertificateKeeper::RefreshIfDue(const ObservedJob& job,
                                             bool is_active,
                                             CertificateState& state) {
  if (!is_active) {
    if (job.Coordinator() == nullptr) state = {.obstacle = state.obstacle};
    return absl::OkStatus();
  }
  const bool is_fresh = state.secret == job.Secret() && job.now < state.recheck_at;
  return is_fresh || !job.HasPods() ? absl::OkStatus() : Refresh(job, {}, state);
}

absl::Status CertificateKeeper::DeleteOwn(const ObservedJob& job) {
  const ObjectKey secret{.object_namespace = job.key().object_namespace, .name = job.Secret()};
  if (secret.name.empty() || !job.object().job.spec.security.secret_name.empty())
    return absl::OkStatus();
  const absl::StatusOr<ObjectMeta> found =
      client_.GetMeta(SecretType(), secret, client_.CallDeadline());
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(found.status());
  if (found->controller_uid != job.meta().uid) return absl::OkStatus();
  const absl::Status deleted =
      client_.Delete(SecretType(), secret, {.uid = found->uid}, client_.CallDeadline());
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

bool CertificateKeeper::RefreshAfterRefusal(const ObservedJob& job, CertificateState& state) {
  const std::shared_ptr<const pushpull::TlsFiles> refused = state.files;
  if (refused == nullptr || job.now < state.reread_at) return false;
  state.reread_at = job.now + kRereadPause;
  return Refresh(job, {}, state).ok() && state.files != nullptr && *state.files != *refused;
}

absl::Status CertificateKeeper::Read(const ObjectKey& secret,
                                     WallTime now,
                                     CertificateState& state) {
  const absl::StatusOr<Object> found = client_.Get(SecretType(), secret, client_.CallDeadline());
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(
        absl::StrCat("spec.security.secretName: there is no Secret ", ToString(secret)));
  }
  PUSHPULL_RETURN_IF_ERROR(found.status());
  JobCertificates certificates = DecodeTlsSecret(*found);
  if (certificates.authorities.empty() || certificates.shared.certificate.empty() ||
      certificates.shared.private_key.empty()) {
    return absl::NotFoundError(absl::StrCat("spec.security.secretName: Secret ",
                                            ToString(secret),
                                            " must have ca.crt, tls.crt and tls.key"));
  }
  Take(found->meta,
       {.authorities = std::move(certificates.authorities), .pair = std::move(certificates.shared)},
       now + kRecheckPeriod,
       state);
  return absl::OkStatus();
}

absl::Status CertificateKeeper::EnsureOwn(const ObservedJob& job,
                                          const ObjectKey& secret,
                                          const std::vector<MemberId>& next,
                                          CertificateState& state) {
  const absl::StatusOr<Object> found = client_.Get(SecretType(), secret, client_.CallDeadline());
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  const Object* present = found.ok() ? &*found : nullptr;
  if (present != nullptr && present->meta.controller_uid != job.meta().uid)
    return OwnedByAnother(SecretType(), secret);
  PUSHPULL_ASSIGN_OR_RETURN(
      CertificateUpdate kept,
      UpdateCertificates(present == nullptr ? JobCertificates{} : DecodeTlsSecret(*present),
                         SubjectsOf(job.key(), MembersWithCertificates(job, next)),
                         job.now,
                         life_));
  PUSHPULL_RETURN_IF_ERROR(CheckSecretSize(kept.certificates));
  ObjectMeta now = present == nullptr ? ObjectMeta{} : present->meta;
  if (kept.has_changed || !HasLabels(now, JobLabels(job.key().name))) {
    PUSHPULL_ASSIGN_OR_RETURN(now, Write(job.meta(), secret, present, kept.certificates));
  }
  Take(now,
       {.authorities = std::move(kept.certificates.authorities),
        .pair = std::move(kept.certificates.pairs[pushpull::kOperatorMember])},
       std::min(kept.renew_at, job.now + kRecheckPeriod),
       state);
  return absl::OkStatus();
}

// If two operators write at once, one is refused: a Secret is created only if there is none, and
// changed only at the version that was read.
absl::StatusOr<ObjectMeta> CertificateKeeper::Write(const ObjectMeta& job,
                                                    const ObjectKey& secret,
                                                    const Object* present,
                                                    const JobCertificates& certificates) {
  absl::StatusOr<ObjectMeta> written;
  if (present == nullptr) {
    written = client_.Create(SecretType(),
                             secret.object_namespace,
                             NewTlsSecretText(job, certificates),
                             DryRun::kNo,
                             client_.CallDeadline());
  } else {
    written = client_.MergePatch(
        SecretType(),
        secret,
        TlsSecretPatchText(
            job, DecodeTlsSecret(*present), certificates, present->meta.resource_version),
        "",
        client_.CallDeadline());
  }
  const absl::Status& status = written.status();
  const bool has_changed_since = absl::IsAlreadyExists(status) || absl::IsNotFound(status);
  if (has_changed_since) return absl::AbortedError(status.message());
  return written;
}

}  // namespace pushpull_operator
