// SPDX-License-Identifier: Apache-2.0
//
// Which document of a file is the manifest: files for Kubernetes often have a claim, a ConfigMap
// and the job, and `kubectl get -o yaml` without a name prints a List.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

struct ManifestDocument {
  Tree tree;
  std::vector<std::string> ignored;  // kind and name of each other document, printable
};

// Reads `text` and takes its document of one of `kinds`, the first kind of which there is any. A
// text with one document is judged as that, whatever its kind; an empty text is a null tree.
//
// Adds a problem, and returns nothing, if there is no such document among several, or more than
// one; the text names what was found. Otherwise adds the problems of the document that it takes.
std::optional<ManifestDocument> TakeDocument(absl::string_view text,
                                             std::span<const absl::string_view> kinds,
                                             Problems& problems);

}  // namespace pushpull
