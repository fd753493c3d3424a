// SPDX-License-Identifier: Apache-2.0
//
// A small file as one string: a token, a certificate, a kubeconfig.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// Blocks on the file system. Errors name the file: kNotFound, kPermissionDenied, ...;
// kInvalidArgument: more than 1 MiB.
absl::StatusOr<std::string> ReadTextFile(const std::string& file);

}  // namespace pushpull
