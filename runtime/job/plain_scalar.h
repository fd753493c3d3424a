// SPDX-License-Identifier: Apache-2.0
//
// What an unquoted YAML scalar is: null, a boolean, a number or a string.
#pragma once

#include "absl/strings/string_view.h"

#include "runtime/job/tree.h"

namespace pushpull {

// Resolves a scalar that was written without quotes and without a tag.
//
// Source: the resolution of sigs.k8s.io/yaml, which kubectl uses: YAML 1.1 (yes, on and the like
// are booleans; 0x10, 0b11, 0o17 and 017 are integers; underscores between digits are skipped).
// Differs: timestamps, infinities and NaN stay strings, because no field takes them.
Tree ResolvePlainScalar(absl::string_view text);

}  // namespace pushpull
