// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/certificate_keeper.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/children/tls_secret.h"
#include "operator/controller/object_maker.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

// A Secret is not watched: one that was deleted, or that the user has changed, is found so late
// where nothing else asks for it.
constexpr std::chrono::hours kRecheckPeriod{1};
constexpr std::chrono::seconds kRereadPause{30};

void Take(const ObjectKey& secret,
          JobCertificates certificates,
          WallTime recheck_at,
          CertificateState& state) {
  state.secret = secret.name;
  state.files = std::make_shared<const pushpull::TlsFiles>(
      pushpull::TlsFiles{.authorities = std::move(certificates.authorities),
                         .certificate = std::move(certificates.certificate),
                         .private_key = std::move(certificates.private_key)});
  state.recheck_at = recheck_at;
}

}  // namespace

absl::Status CertificateKeeper::Refresh(const ObservedJob& job, CertificateState& state) {
  const ObjectKey secret{.object_namespace = job.key().object_namespace, .name = job.Secret()};
  absl::Status refreshed;
  if (secret.name.empty()) {
    state = {};
  } else if (job.object().job.spec.security.secret_name.empty()) {
    refreshed = EnsureOwn(job, secret, state);
  } else {
    refreshed = Read(secret, job.now, state);
  }
  state.obstacle =
      absl::IsNotFound(refreshed)
          ? Obstacle{.reason = "SecretMissing", .message = std::string(refreshed.message())}
          : ObstacleOf(refreshed);
  return refreshed;
}

absl::Status CertificateKeeper::RefreshIfDue(const ObservedJob& job,
                                             bool is_active,
                                             CertificateState& state) {
  if (!is_active) {
    if (job.Coordinator() == nullptr) state = {.obstacle = state.obstacle};
    return absl::OkStatus();
  }
  const bool is_fresh = state.secret == job.Secret() && job.now < state.recheck_at;
  return is_fresh || !job.HasPods() ? absl::OkStatus() : Refresh(job, state);
}

bool CertificateKeeper::RefreshAfterRefusal(const ObservedJob& job, CertificateState& state) {
  const std::shared_ptr<const pushpull::TlsFiles> refused = state.files;
  if (refused == nullptr || job.now < state.reread_at) return false;
  state.reread_at = job.now + kRereadPause;
  return Refresh(job, state).ok() && state.files != nullptr && *state.files != *refused;
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
  if (certificates.authorities.empty() || certificates.certificate.empty() ||
      certificates.private_key.empty()) {
    return absl::NotFoundError(absl::StrCat("spec.security.secretName: Secret ",
                                            ToString(secret),
                                            " must have ca.crt, tls.crt and tls.key"));
  }
  Take(secret, std::move(certificates), now + kRecheckPeriod, state);
  return absl::OkStatus();
}

absl::Status CertificateKeeper::EnsureOwn(const ObservedJob& job,
                                          const ObjectKey& secret,
                                          CertificateState& state) {
  const absl::StatusOr<Object> found = client_.Get(SecretType(), secret, client_.CallDeadline());
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  const Object* present = found.ok() ? &*found : nullptr;
  if (present != nullptr && present->meta.controller_uid != job.meta().uid)
    return OwnedByAnother(SecretType(), secret);
  PUSHPULL_ASSIGN_OR_RETURN(
      CertificateUpdate kept,
      UpdateCertificates(present == nullptr ? JobCertificates{} : DecodeTlsSecret(*present),
                         MembersSubject(job.key()),
                         job.now,
                         life_));
  if (kept.has_changed)
    PUSHPULL_RETURN_IF_ERROR(Write(job.meta(), secret, present, kept.certificates));
  Take(secret,
       std::move(kept.certificates),
       std::min(kept.renew_at, job.now + kRecheckPeriod),
       state);
  return absl::OkStatus();
}

// Of two operators that write at once one is refused: a Secret is made only where there is none,
// and changed only as it was read.
absl::Status CertificateKeeper::Write(const ObjectMeta& job,
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
    written = client_.MergePatch(SecretType(),
                                 secret,
                                 TlsSecretPatchText(certificates, present->meta.resource_version),
                                 "",
                                 client_.CallDeadline());
  }
  const absl::Status& status = written.status();
  const bool has_changed_since = absl::IsAlreadyExists(status) || absl::IsNotFound(status);
  return has_changed_since ? absl::AbortedError(status.message()) : status;
}

}  // namespace pushpull_operator
