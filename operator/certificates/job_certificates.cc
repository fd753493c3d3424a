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

Validity From(WallTime now, seconds lifetime) {
  return {.begin = now - kClockSkewMax, .end = now + lifetime};
}

// Keeps or issues pairs one by one, all signed by one authority.
class PairKeeper {
 public:
  PairKeeper(KeyPair authority, WallTime now, seconds lifetime)
      : authority_(std::move(authority)),
        authority_validity_(CheckAuthority(authority_)),
        now_(now),
        lifetime_(lifetime) {}

  // `pair`, or a new one if it is missing, invalid, from another authority or due.
  absl::StatusOr<KeyPair> Keep(const KeyPair& pair, const CertificateSubject& subject) {
    const std::optional<Validity> had = CheckMember(pair, authority_);
    if (DecideStep(authority_validity_, had, now_, lifetime_) == CertificateStep::kKeep) {
      renew_at_ = std::min(renew_at_, RenewalTime(*had));
      return pair;
    }
    has_renewed_ = has_renewed_ || had.has_value();
    const Validity validity = From(now_, lifetime_);
    renew_at_ = std::min(renew_at_, RenewalTime(validity));
    return MakeMember(subject, validity, authority_);
  }

  WallTime renew_at() const { return renew_at_; }
  // A pair of this authority was due: by then all members have long known the authority.
  bool has_renewed() const { return has_renewed_; }

 private:
  const KeyPair authority_;
  const std::optional<Validity> authority_validity_;
  const WallTime now_;
  const seconds lifetime_;
  WallTime renew_at_ = WallTime::max();
  bool has_renewed_ = false;
};

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

absl::StatusOr<CertificateUpdate> UpdateCertificates(const JobCertificates& current,
                                                     const JobSubjects& subjects,
                                                     WallTime now,
                                                     seconds lifetime) {
  JobCertificates next{.authorities = current.authorities, .authority_key = current.authority_key};
  const std::string own = FirstCertificate(current.authorities);
  const CertificateStep step =
      DecideStep(CheckAuthority(AuthorityOf(current)), std::nullopt, now, lifetime);
  if (step == CertificateStep::kNewAuthority) {
    PUSHPULL_ASSIGN_OR_RETURN(KeyPair authority,
                              MakeAuthority({.name = absl::StrCat("authority of ", subjects.job)},
                                            From(now, kAuthorityLifetime)));
    next.authorities = absl::StrCat(authority.certificate, own);
    next.authority_key = std::move(authority.private_key);
  }
  PairKeeper keeper(AuthorityOf(next), now, lifetime);
  if (current.shared != KeyPair{}) {
    PUSHPULL_ASSIGN_OR_RETURN(next.shared, keeper.Keep(current.shared, subjects.shared));
  }
  for (const auto& [member, subject] : subjects.members) {
    const auto found = current.pairs.find(member);
    const KeyPair pair = found == current.pairs.end() ? KeyPair{} : found->second;
    PUSHPULL_ASSIGN_OR_RETURN(next.pairs[member], keeper.Keep(pair, subject));
  }
  if (keeper.has_renewed()) next.authorities = own;
  const bool has_changed = next != current;
  return CertificateUpdate{
      .certificates = std::move(next), .has_changed = has_changed, .renew_at = keeper.renew_at()};
}

}  // namespace pushpull_operator
