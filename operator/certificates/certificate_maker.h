// SPDX-License-Identifier: Apache-2.0
//
// Issues and checks certificates: X.509 in PEM, keys on the curve P-256. Uses no clock: the caller
// passes the validity. Pure except for the random numbers of keys.
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

// PEM. Never part of an error message.
struct KeyPair {
  std::string certificate;
  std::string private_key;
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

struct CertificateSubject {
  std::string name;                         // common name; truncated to the 64 bytes of X.509
  std::vector<std::string> dns_names = {};  // subject alternative names of a member
};

// Both fail only with kInternal: out of memory or random numbers.

// Self-signed. May sign members, but no other authorities.
absl::StatusOr<KeyPair> MakeAuthority(const CertificateSubject& subject, const Validity& validity);

// A certificate for TLS servers and clients, signed by the first certificate of `authority`.
absl::StatusOr<KeyPair> MakeMember(const CertificateSubject& subject,
                                   const Validity& validity,
                                   const KeyPair& authority);

// The validity of the first certificate of `authority`; nothing if it cannot sign: one of the texts
// is damaged, or the key does not match.
std::optional<Validity> CheckAuthority(const KeyPair& authority);

// The same for a member; nothing also if it is an authority, or not signed by `authority`.
std::optional<Validity> CheckMember(const KeyPair& member, const KeyPair& authority);

// The first certificate of a text, in PEM; empty if there is none.
std::string FirstCertificate(const std::string& text);

}  // namespace pushpull_operator
