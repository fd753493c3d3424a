// SPDX-License-Identifier: Apache-2.0
//
// The problems of a manifest, each with the path of its field, and how paths and user text are
// quoted in them. Every problem is one printable line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

struct ManifestProblem {
  std::string field;  // "spec.servers.replicas"; "line 3, column 5"; empty: the whole manifest
  std::string text;   // "must be between 1 and 1024, is -1"
  friend bool operator==(const ManifestProblem&, const ManifestProblem&) = default;
};

// "spec.servers.replicas: must be between 1 and 1024, is -1".
std::string ToString(const ManifestProblem& problem);

// Collects the problems of one manifest, at most kMax of them; the rest are only counted.
// Thread-compatible.
class Problems {
 public:
  static constexpr size_t kMax = 100;

  // Control characters, which a library's message may contain, are replaced by '?'.
  void Add(std::string field, std::string text);

  // Whether a problem is at `field` or at an object around it: its value is then not checked again.
  bool Covers(absl::string_view field) const;
  // Like Covers, but also true for a problem inside `field`: its value is not as in the manifest.
  bool Touches(absl::string_view field) const;

  // Whether further problems are only counted.
  bool is_full() const { return problems_.size() >= kMax; }
  bool empty() const { return problems_.empty(); }
  // The problems in the order they were added; if there were too many, a last line says so.
  std::vector<ManifestProblem> Take();

 private:
  std::vector<ManifestProblem> problems_;
  size_t num_dropped_ = 0;
};

// "spec" and "servers" -> "spec.servers"; a key with other characters is put in brackets and
// quotes.
std::string JoinPath(absl::string_view path, absl::string_view key);

// "spec.command" and 2 -> "spec.command[2]".
std::string JoinPath(absl::string_view path, size_t index);

// The text in double quotes, on one line, cut after 60 bytes.
std::string Quoted(absl::string_view text);

// The candidate that `word` was most likely meant to be; empty if none is close.
absl::string_view ClosestName(absl::string_view word,
                              const std::vector<absl::string_view>& candidates);

}  // namespace pushpull
