// SPDX-License-Identifier: Apache-2.0
#include "operator/certificates/job_certificates.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using std::chrono::seconds;

KeyPair AuthorityOf(const JobCertificates& certificates) {
  return {.certificate = certificates.authorities, .private_key = certificates.authority_key};
}

KeyPair PairOf(const JobCertificates& certificates) {
  return {.certificate = certificates.certificate, .private_key = certificates.private_key};
}

Validity From(WallTime now, seconds lifetime) {
  return {.begin = now - kClockSkewMax, .end = now + lifetime};
}

}  // namespace

WallTime RenewalTime(const Validity& validity) {
  const WallTime issued = validity.begin + kClockSkewMax;
  return std::min(issued + (validity.end - issued) * 3 / 5, validity.end);
}

CertificateStep DecideStep(const std::optional<Validity>& authority,
                           const std::optional<Validity>& member,
                           WallTime now,
                           seconds lifetime) {
  // An authority must outlive the pair it signs. One that is not valid yet was issued while the API
  // server's clock was wrong.
  if (!authority || now < authority->begin || authority->end < now + lifetime)
    return CertificateStep::kNewAuthority;
  if (!member || now < member->begin || now >= RenewalTime(*member))
    return CertificateStep::kNewMember;
  return CertificateStep::kKeep;
}

absl::StatusOr<CertificateUpdate> UpdateCertificates(JobCertificates current,
                                                     const CertificateSubject& members,
                                                     WallTime now,
                                                     seconds lifetime) {
  std::optional<Validity> member = CheckMember(PairOf(current), AuthorityOf(current));
  const CertificateStep step =
      DecideStep(CheckAuthority(AuthorityOf(current)), member, now, lifetime);
  if (step == CertificateStep::kKeep)
    return CertificateUpdate{.certificates = std::move(current), .renew_at = RenewalTime(*member)};
  const std::string own = FirstCertificate(current.authorities);
  if (step == CertificateStep::kNewAuthority) {
    PUSHPULL_ASSIGN_OR_RETURN(KeyPair authority,
                              MakeAuthority({.name = absl::StrCat("authority of ", members.name)},
                                            From(now, kAuthorityLifetime)));
    current.authorities = absl::StrCat(authority.certificate, own);
    current.authority_key = std::move(authority.private_key);
  } else {
    current.authorities = own;
  }
  const Validity validity = From(now, lifetime);
  PUSHPULL_ASSIGN_OR_RETURN(KeyPair pair, MakeMember(members, validity, AuthorityOf(current)));
  current.certificate = std::move(pair.certificate);
  current.private_key = std::move(pair.private_key);
  return CertificateUpdate{
      .certificates = std::move(current), .has_changed = true, .renew_at = RenewalTime(validity)};
}

}  // namespace pushpull_operator
