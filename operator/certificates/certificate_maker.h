// SPDX-License-Identifier: Apache-2.0
//
// Makes certificates and says whether such ones are sound: X.509 in PEM, keys on the curve P-256.
// Needs no clock: whoever calls says when a certificate begins and ends. Pure but for the random
// numbers of keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "operator/api/wall_time.h"

namespace pushpull_operator {

struct Validity {
  WallTime begin{};
  WallTime end{};
  friend bool operator==(const Validity&, const Validity&) = default;
};

// PEM. Never part of an error.
struct KeyPair {
  std::string certificate;
  std::string private_key;
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

struct CertificateSubject {
  std::string name;                         // for people; cut to the 64 bytes that X.509 allows
  std::vector<std::string> dns_names = {};  // of a member
};

// Errors of both are the library's own (kInternal): out of memory or of random numbers.

// Signed by itself. May sign for members, not for other authorities.
absl::StatusOr<KeyPair> MakeAuthority(const CertificateSubject& subject, const Validity& validity);

// For servers and clients of TLS, signed by the first certificate of `authority`.
absl::StatusOr<KeyPair> MakeMember(const CertificateSubject& subject,
                                   const Validity& validity,
                                   const KeyPair& authority);

// How long the first certificate of `authority` is valid; nothing where it can sign for nobody: one
// of the texts is damaged, or the two do not belong together.
std::optional<Validity> CheckAuthority(const KeyPair& authority);

// The same for a member; nothing also where it is an authority, or `authority` did not sign it.
std::optional<Validity> CheckMember(const KeyPair& member, const KeyPair& authority);

// The first certificate of a text, in PEM; empty where there is none.
std::string FirstCertificate(const std::string& text);

}  // namespace pushpull_operator
