// SPDX-License-Identifier: Apache-2.0
//
// Reads YAML text, and therefore JSON text, into a tree. Plain scalars are resolved as by kubectl
// (YAML 1.1 with octal numbers and yes/no), so that a manifest is the same here and on a cluster.
// The input is untrusted: its size, depth and number of values are bounded before they cost
// anything.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

// The most that `kubectl apply` can carry (its annotation holds the whole manifest). Reading the
// worst text of this size takes a fifth of a second and 70 MB.
inline constexpr size_t kManifestBytesMax = size_t{1} << 18;
inline constexpr size_t kManifestDepthMax = 64;
// Counts a value again for every anchor around it and every alias to it, so that a few lines of
// aliases to aliases cannot become billions of values. For all documents of a text together.
inline constexpr size_t kManifestValuesMax = 100'000;

struct YamlDocument {
  Tree tree;
  std::string place;                      // where it starts: "line 3, column 1"
  std::vector<ManifestProblem> problems;  // keys given twice, keys that are no strings
};

// The documents in `text` that are not empty. Adds a problem and returns nothing if the text cannot
// be read to its end (syntax errors by line and column). Does not throw.
std::optional<std::vector<YamlDocument>> ReadYamlDocuments(absl::string_view text,
                                                           Problems& problems);

// The one document in `text`; a null tree if the text is empty. Adds a problem for everything that
// is wrong with the text (syntax errors by line and column, a duplicate key by its path). Returns
// nothing if there is no usable tree. Does not throw.
std::optional<Tree> ReadYaml(absl::string_view text, Problems& problems);

}  // namespace pushpull
