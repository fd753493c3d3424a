// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Bytes of the UTF-8 character at the start of `text`, which must not be empty; 0: it is not valid.
size_t Utf8CharacterBytes(absl::string_view text);

// The text with every byte that is not valid UTF-8 replaced by '?'.
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace pushpull
