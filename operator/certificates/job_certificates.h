// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one job: its own authority, the pair that all members use, and when they are
// renewed (docs/decisions/0028-certificates-of-a-job.md). Pure except for the random numbers of
// keys.
//
//   issued ---------------- 3/5 of the lifetime: renewed ----- 2/3 ------------------ expiry
#pragma once

#include <chrono>
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
  std::string authorities;    // that members trust; the current one first
  std::string authority_key;  // of the current one
  std::string certificate;    // shared by all members
  std::string private_key;    // shared by all members
  friend bool operator==(const JobCertificates&, const JobCertificates&) = default;
};

enum class CertificateStep { kKeep, kNewMember, kNewAuthority };

// When a certificate issued here is renewed.
WallTime RenewalTime(const Validity& validity);

// What to do with certificates of these validities (nothing: invalid). `lifetime` is that of a new
// member certificate.
CertificateStep DecideStep(const std::optional<Validity>& authority,
                           const std::optional<Validity>& member,
                           WallTime now,
                           std::chrono::seconds lifetime);

struct CertificateUpdate {
  JobCertificates certificates;
  bool has_changed = false;
  WallTime renew_at{};
};

// Returns `current` with what is missing, invalid or due renewed. A new authority is trusted beside
// the previous one until the next renewal, because files reach members at different times. Errors
// are those of MakeAuthority.
absl::StatusOr<CertificateUpdate> UpdateCertificates(JobCertificates current,
                                                     const CertificateSubject& members,
                                                     WallTime now,
                                                     std::chrono::seconds lifetime);

}  // namespace pushpull_operator
