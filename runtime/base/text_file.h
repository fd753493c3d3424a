// SPDX-License-Identifier: Apache-2.0
//
// A small file as one string: a token, a certificate, a kubeconfig.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// Blocks on the file system. kNotFound, kPermissionDenied, ... name the file; kInvalidArgument: it
// has more than 1 MiB.
absl::StatusOr<std::string> ReadTextFile(const std::string& file);

}  // namespace pushpull
