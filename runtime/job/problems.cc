// SPDX-License-Identifier: Apache-2.0
//
// Collects and words problems; see problems.h.
#include "runtime/job/problems.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

namespace {

constexpr size_t kQuotedBytesMax = 60;

// No field of the manifest is longer; a longer word is no misspelling of one.
constexpr size_t kWordBytesMax = 40;

// The shortest prefix by which a longer name is recognised: "every" for everySeconds.
constexpr size_t kPrefixBytesMin = 4;

bool IsPlainKey(absl::string_view key) {
  return !key.empty() && key.size() <= kQuotedBytesMax && absl::c_all_of(key, [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
}

// Whether `outer` is `inner` or an object or list around it; the empty path contains everything.
bool Contains(absl::string_view outer, absl::string_view inner) {
  if (outer.empty()) return true;
  if (!absl::StartsWith(inner, outer)) return false;
  return inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[';
}

std::string Printable(std::string text) {
  const auto is_control = [](unsigned char c) { return absl::ascii_iscntrl(c); };
  std::ranges::replace_if(text, is_control, '?');
  return text;
}

// Insertions, removals and replacements that turn one word into the other (Levenshtein 1966).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string ToString(const ManifestProblem& problem) {
  if (problem.field.empty()) return problem.text;
  return absl::StrCat(problem.field, ": ", problem.text);
}

void Problems::Add(std::string field, std::string text) {
  if (is_full()) {
    ++num_dropped_;
    return;
  }
  problems_.push_back({.field = Printable(std::move(field)), .text = Printable(std::move(text))});
}

bool Problems::Covers(absl::string_view field) const {
  return absl::c_any_of(problems_, [&](const auto& it) { return Contains(it.field, field); });
}

bool Problems::Touches(absl::string_view field) const {
  return absl::c_any_of(problems_, [&](const ManifestProblem& problem) {
    return Contains(problem.field, field) || Contains(field, problem.field);
  });
}

std::vector<ManifestProblem> Problems::Take() {
  if (num_dropped_ > 0)
    problems_.push_back({"", absl::StrCat("and ", num_dropped_, " more problems")});
  num_dropped_ = 0;
  return std::exchange(problems_, {});
}

std::string JoinPath(absl::string_view path, absl::string_view key) {
  if (!IsPlainKey(key)) return absl::StrCat(path, "[", Quoted(key), "]");
  return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
}

std::string JoinPath(absl::string_view path, size_t index) {
  return absl::StrCat(path, "[", index, "]");
}

std::string Quoted(absl::string_view text) {
  size_t end = std::min(text.size(), kQuotedBytesMax);
  // Not in the middle of a UTF-8 character, whose bytes after the first are 10xxxxxx.
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return absl::StrCat(
      "\"", absl::Utf8SafeCHexEscape(text.substr(0, end)), end < text.size() ? "..." : "", "\"");
}

absl::string_view ClosestName(absl::string_view word,
                              const std::vector<absl::string_view>& candidates) {
  if (word.empty() || word.size() > kWordBytesMax) return "";
  const std::string lower = absl::AsciiStrToLower(word);
  absl::string_view closest;
  size_t least = std::min<size_t>(2, word.size() / 2) + 1;  // two slips; one in a short word
  for (const absl::string_view candidate : candidates) {
    const std::string lower_candidate = absl::AsciiStrToLower(candidate);
    if (lower.size() >= kPrefixBytesMin && absl::StartsWith(lower_candidate, lower)) {
      return candidate;
    }
    const size_t distance = EditDistance(lower, lower_candidate);
    if (distance < least) {
      closest = candidate;
      least = distance;
    }
  }
  return closest;
}

}  // namespace pushpull
