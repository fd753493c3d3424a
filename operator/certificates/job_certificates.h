// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one job: an authority of its own and the pair that all of its members show,
// and when they are replaced (decisions/0028-certificates-of-a-job.md). Pure but for the random
// numbers of keys.
//
//   issued ------------------ 3/5 of its life: renewed ------- 2/3 ------------------ end
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "operator/api/wall_time.h"
#include "operator/certificates/certificate_maker.h"

namespace pushpull_operator {

// How far clocks may differ without a certificate that is refused because it has not begun: each
// begins so long before it is issued.
inline constexpr std::chrono::minutes kClockDifference{10};
// One for the life of nearly every job.
inline constexpr std::chrono::days kAuthorityLife{3650};

// PEM, empty where there is none. Never part of an error.
struct JobCertificates {
  std::string authorities;    // that members trust; the job's own first
  std::string authority_key;  // of the first one
  std::string certificate;    // of every member
  std::string private_key;    // likewise
  friend bool operator==(const JobCertificates&, const JobCertificates&) = default;
};

enum class CertificateStep { kKeep, kNewMember, kNewAuthority };

// When a certificate that was issued here is to be replaced.
WallTime RenewalTime(const Validity& validity);

// What to do with certificates of which these are sound. `life` is that of a new member's.
CertificateStep DecideStep(const std::optional<Validity>& authority,
                           const std::optional<Validity>& member,
                           WallTime now,
                           std::chrono::seconds life);

struct KeptCertificates {
  JobCertificates certificates;
  bool has_changed = false;
  WallTime renew_at{};
};

// `present` as it shall be now. A new authority is trusted beside the one before it, as far as that
// can be read, until the next renewal: files reach members at different times. Errors are those of
// MakeAuthority.
absl::StatusOr<KeptCertificates> BringUpToDate(JobCertificates present,
                                               const CertificateSubject& members,
                                               WallTime now,
                                               std::chrono::seconds life);

}  // namespace pushpull_operator
