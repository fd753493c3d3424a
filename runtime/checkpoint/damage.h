// SPDX-License-Identifier: Apache-2.0
//
// How every reader of a checkpoint says where a file is damaged: in the text for people, and as a
// number for those who print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// kDataLoss "FILE at byte OFFSET: WHAT".
absl::Status DamageError(const std::string& file, uint64_t offset, absl::string_view what);

// The offset of a status made by DamageError; nothing for any other.
std::optional<uint64_t> DamageOffset(const absl::Status& status);

}  // namespace pushpull
