// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made when they are needed and valid for an hour.
#pragma once

#include <string>

namespace pushpull_operator {

struct FakeCertificate {
  std::string certificate;  // PEM
  std::string private_key;  // PEM
};

FakeCertificate MakeAuthority(const std::string& name);

// For the address 127.0.0.1 and the name pushpull.test, signed by `authority`.
FakeCertificate MakeCertificate(const std::string& name, const FakeCertificate& authority);

}  // namespace pushpull_operator
