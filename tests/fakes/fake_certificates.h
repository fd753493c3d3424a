// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made when they are needed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace pushpull {

struct FakeCertificate {
  std::string certificate;  // PEM
  std::string private_key;  // PEM
};

// Valid from a minute ago to `valid_for` from now.
FakeCertificate MakeAuthority(const std::string& name,
                              std::chrono::seconds valid_for = std::chrono::hours(1));

// With these DNS names and no others, signed by `authority`.
FakeCertificate MakeNamedCertificate(const std::vector<std::string>& dns_names,
                                     const FakeCertificate& authority);

// For the address 127.0.0.1 and the names pushpull.test and pushpull, signed by `authority`.
FakeCertificate MakeCertificate(const std::string& name,
                                const FakeCertificate& authority,
                                std::chrono::seconds valid_for = std::chrono::hours(1));

}  // namespace pushpull
