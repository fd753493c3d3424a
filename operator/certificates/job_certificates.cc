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

Validity From(WallTime now, seconds life) {
  return {.begin = now - kClockDifference, .end = now + life};
}

}  // namespace

WallTime RenewalTime(const Validity& validity) {
  const WallTime issued = validity.begin + kClockDifference;
  return std::min(issued + (validity.end - issued) * 3 / 5, validity.end);
}

CertificateStep DecideStep(const std::optional<Validity>& authority,
                           const std::optional<Validity>& member,
                           WallTime now,
                           seconds life) {
  // One that ends before the pair that it is to sign is of no use; one that is yet to begin was
  // made while the API server's clock was wrong.
  if (!authority || now < authority->begin || authority->end < now + life)
    return CertificateStep::kNewAuthority;
  if (!member || now < member->begin || now >= RenewalTime(*member))
    return CertificateStep::kNewMember;
  return CertificateStep::kKeep;
}

absl::StatusOr<KeptCertificates> BringUpToDate(JobCertificates present,
                                               const CertificateSubject& members,
                                               WallTime now,
                                               seconds life) {
  std::optional<Validity> member = CheckMember(PairOf(present), AuthorityOf(present));
  const CertificateStep step = DecideStep(CheckAuthority(AuthorityOf(present)), member, now, life);
  if (step == CertificateStep::kKeep)
    return KeptCertificates{.certificates = std::move(present), .renew_at = RenewalTime(*member)};
  const std::string own = FirstCertificate(present.authorities);
  if (step == CertificateStep::kNewAuthority) {
    PUSHPULL_ASSIGN_OR_RETURN(KeyPair authority,
                              MakeAuthority({.name = absl::StrCat("authority of ", members.name)},
                                            From(now, kAuthorityLife)));
    present.authorities = absl::StrCat(authority.certificate, own);
    present.authority_key = std::move(authority.private_key);
  } else {
    present.authorities = own;
  }
  const Validity validity = From(now, life);
  PUSHPULL_ASSIGN_OR_RETURN(KeyPair pair, MakeMember(members, validity, AuthorityOf(present)));
  present.certificate = std::move(pair.certificate);
  present.private_key = std::move(pair.private_key);
  return KeptCertificates{
      .certificates = std::move(present), .has_changed = true, .renew_at = RenewalTime(validity)};
}

}  // namespace pushpull_operator
