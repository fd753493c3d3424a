// SPDX-License-Identifier: Apache-2.0
//
// YAML text, and therefore JSON text, to a tree. Plain scalars are resolved as by kubectl (YAML 1.1
// with octal numbers and yes/no), so that a manifest is the same here and on a cluster. The input
// is untrusted: size, depth and number of values are bounded before they cost anything.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

// What `kubectl apply` can carry at all (its annotation holds the whole manifest). Reading the
// worst text of this size takes a fifth of a second and 70 MB.
inline constexpr size_t kManifestBytesMax = size_t{1} << 18;
inline constexpr size_t kManifestDepthMax = 64;
// Counts a value again for every anchor around it and every alias to it, so that a few lines of
// aliases to aliases cannot become billions of values.
inline constexpr size_t kManifestValuesMax = 100'000;

// The one document in `text`; a null tree where the text is empty. Adds a problem for everything
// that is wrong with the text (syntax by line and column, a key given twice by its path). Returns
// nothing without a usable tree. Does not throw.
std::optional<Tree> ReadYaml(absl::string_view text, Problems& problems);

}  // namespace pushpull
