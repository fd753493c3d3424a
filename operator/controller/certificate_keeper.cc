// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/certificate_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/certificates/job_certificates.h"
#include "operator/children/tls_secret.h"
#include "operator/controller/object_maker.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

// A Secret is not watched: one that was deleted, or that the user has changed, is found so late
// where nothing else asks for it.
constexpr std::chrono::hours kRecheckPeriod{1};

MemberCertificates ForMembers(const ObjectKey& secret,
                              JobCertificates certificates,
                              WallTime recheck_at) {
  return {.secret = secret.name,
          .files = std::make_shared<const pushpull::TlsFiles>(
              pushpull::TlsFiles{.authorities = std::move(certificates.authorities),
                                 .certificate = std::move(certificates.certificate),
                                 .private_key = std::move(certificates.private_key)}),
          .recheck_at = recheck_at};
}

}  // namespace

CertificateKeeper::CertificateKeeper(KubeClient& client,
                                     const pushpull::TimeSource& time,
                                     std::chrono::seconds life,
                                     std::chrono::seconds call_time)
    : client_(client), time_(time), life_(life), call_time_(call_time) {}

absl::StatusOr<MemberCertificates> CertificateKeeper::Ensure(const ObjectMeta& job,
                                                             const pushpull::SecuritySpec& security,
                                                             WallTime now) {
  const ObjectKey secret{.object_namespace = job.key.object_namespace,
                         .name = TlsSecretName(job.key.name, security)};
  if (secret.name.empty()) return MemberCertificates{};
  return security.secret_name.empty() ? EnsureOwn(job, secret, now) : Read(secret, now);
}

absl::StatusOr<MemberCertificates> CertificateKeeper::Read(const ObjectKey& secret, WallTime now) {
  const absl::StatusOr<Object> found = client_.Get(SecretType(), secret, CallDeadline());
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
  return ForMembers(secret, std::move(certificates), now + kRecheckPeriod);
}

absl::StatusOr<MemberCertificates> CertificateKeeper::EnsureOwn(const ObjectMeta& job,
                                                                const ObjectKey& secret,
                                                                WallTime now) {
  const absl::StatusOr<Object> found = client_.Get(SecretType(), secret, CallDeadline());
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  const Object* present = found.ok() ? &*found : nullptr;
  if (present != nullptr && present->meta.controller_uid != job.uid)
    return OwnedByAnother(SecretType(), secret);
  PUSHPULL_ASSIGN_OR_RETURN(
      CertificateUpdate kept,
      UpdateCertificates(present == nullptr ? JobCertificates{} : DecodeTlsSecret(*present),
                         MembersSubject(job.key),
                         now,
                         life_));
  if (kept.has_changed) PUSHPULL_RETURN_IF_ERROR(Write(job, secret, present, kept.certificates));
  return ForMembers(
      secret, std::move(kept.certificates), std::min(kept.renew_at, now + kRecheckPeriod));
}

// Of two operators that write at once one is refused: a Secret is made only where there is none,
// and changed only as it was read.
absl::Status CertificateKeeper::Write(const ObjectMeta& job,
                                      const ObjectKey& secret,
                                      const Object* present,
                                      const JobCertificates& certificates) {
  absl::Status written;
  if (present == nullptr) {
    written = client_
                  .Create(SecretType(),
                          secret.object_namespace,
                          NewTlsSecretText(job, certificates),
                          DryRun::kNo,
                          CallDeadline())
                  .status();
  } else {
    written = client_
                  .MergePatch(SecretType(),
                              secret,
                              TlsSecretPatchText(certificates, present->meta.resource_version),
                              {},
                              CallDeadline())
                  .status();
  }
  const bool has_changed_since = absl::IsAlreadyExists(written) || absl::IsNotFound(written);
  return has_changed_since ? absl::AbortedError(written.message()) : written;
}

pushpull::Deadline CertificateKeeper::CallDeadline() const {
  return pushpull::Deadline(time_.Now() + call_time_);
}

}  // namespace pushpull_operator
