// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one job: its own authority, a pair for each member, and when they are renewed
// (docs/decisions/0028-certificates-of-a-job.md, 0061-names-in-certificates.md). Pure except for
// the random numbers of keys.
//
//   issued ---------------- 3/5 of the lifetime: renewed ----- 2/3 ------------------ expiry
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "operator/api/wall_time.h"
#include "operator/certificates/certificate_maker.h"

namespace pushpull_operator {

// Tolerated clock skew: a certificate is valid from this long before it is issued.
inline constexpr std::chrono::minutes kClockSkewMax{10};
// Outlives nearly every job.
inline constexpr std::chrono::days kAuthorityLifetime{3650};

// PEM, empty if missing. Never part of an error message.
struct JobCertificates {
  std::string authorities;    // trusted by members; the current one first
  std::string authority_key;  // of the current one
  // For any member: the user's, or one for pods that an earlier version of the operator started.
  KeyPair shared;
  std::map<std::string, KeyPair> pairs;  // by member: "worker-3", "operator"
  friend bool operator==(const JobCertificates&, const JobCertificates&) = default;
};

enum class CertificateStep { kKeep, kNewMember, kNewAuthority };

// Who gets certificates.
struct JobSubjects {
  std::string job;
  CertificateSubject shared;                          // renewed if it exists, never created
  std::map<std::string, CertificateSubject> members;  // by member
};

// When a certificate issued here is renewed.
WallTime RenewalTime(const Validity& validity);

// What to do with certificates of these validities (nothing: invalid). `lifetime`: of a new member
// certificate.
CertificateStep DecideStep(const std::optional<Validity>& authority,
                           const std::optional<Validity>& member,
                           WallTime now,
                           std::chrono::seconds lifetime);

struct CertificateUpdate {
  JobCertificates certificates;
  bool has_changed = false;
  WallTime renew_at{};
};

// Returns `current` with everything renewed that is missing, invalid or due, and without pairs of
// members not in `subjects`. A new authority is trusted alongside the previous one until its first
// pair is renewed, because files reach members at different times. Errors are those of
// MakeAuthority.
absl::StatusOr<CertificateUpdate> UpdateCertificates(const JobCertificates& current,
                                                     const JobSubjects& subjects,
                                                     WallTime now,
                                                     std::chrono::seconds lifetime);

}  // namespace pushpull_operator
