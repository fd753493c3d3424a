// SPDX-License-Identifier: Apache-2.0
//
// Resolution of scalars; see plain_scalar.h.
#include "runtime/job/plain_scalar.h"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

namespace pushpull {

namespace {

// No number that fits in 64 bits or a double needs more.
constexpr size_t kNumberBytesMax = 400;

// As given, in upper case, or capitalized: the three spellings that YAML 1.1 allows.
bool IsSpelled(absl::string_view text, absl::string_view lower) {
  if (text.size() != lower.size() || absl::AsciiStrToLower(text) != lower) return false;
  const absl::string_view rest = text.substr(1);
  const bool rest_is_lower = rest == lower.substr(1);
  const bool all_is_upper = text == absl::AsciiStrToUpper(text);
  return rest_is_lower || all_is_upper;
}

bool IsAnyOf(absl::string_view text, std::initializer_list<absl::string_view> words) {
  return absl::c_any_of(words, [text](absl::string_view word) { return IsSpelled(text, word); });
}

// The base that the prefix of an unsigned number stands for; removes the prefix.
int TakeBase(absl::string_view& digits) {
  const std::string lower = absl::AsciiStrToLower(digits.substr(0, 2));
  int base = 10;
  size_t prefix_bytes = 0;
  if (lower == "0x") base = 16, prefix_bytes = 2;
  if (lower == "0b") base = 2, prefix_bytes = 2;
  if (lower == "0o") base = 8, prefix_bytes = 2;
  if (base == 10 && digits.size() > 1 && digits[0] == '0') base = 8, prefix_bytes = 1;
  digits.remove_prefix(prefix_bytes);
  return base;
}

std::optional<int64_t> ParseInteger(absl::string_view text) {
  const bool is_negative = absl::StartsWith(text, "-");
  if (is_negative || absl::StartsWith(text, "+")) text.remove_prefix(1);
  const int base = TakeBase(text);
  uint64_t magnitude = 0;
  const char* end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data(), end, magnitude, base);
  if (error != std::errc() || parsed_to != end) return std::nullopt;
  const uint64_t largest =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (is_negative ? 1 : 0);
  if (magnitude > largest) return std::nullopt;
  return static_cast<int64_t>(is_negative ? 0 - magnitude : magnitude);
}

std::optional<double> ParseNumber(absl::string_view text) {
  const bool has_only_number_characters =
      text.find_first_not_of("0123456789+-.eE") == absl::string_view::npos;
  double number = 0;
  if (!has_only_number_characters || !absl::SimpleAtod(text, &number)) return std::nullopt;
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

Tree ResolvePlainScalar(absl::string_view text) {
  Tree tree = MakeTree(Tree::Kind::kString, text);
  if (text.empty() || text == "~" || IsSpelled(text, "null")) {
    tree.kind = Tree::Kind::kNull;
    return tree;
  }
  const bool is_true = IsAnyOf(text, {"true", "yes", "on", "y"});
  if (is_true || IsAnyOf(text, {"false", "no", "off", "n"})) {
    tree.kind = Tree::Kind::kBool;
    tree.boolean = is_true;
    return tree;
  }
  const bool may_be_number =
      absl::ascii_isdigit(static_cast<unsigned char>(text[0])) || absl::StrContains("+-.", text[0]);
  if (!may_be_number || text.size() > kNumberBytesMax) return tree;
  const std::string digits = absl::StrReplaceAll(text, {{"_", ""}});
  if (const std::optional<int64_t> integer = ParseInteger(digits)) {
    tree.kind = Tree::Kind::kInteger;
    tree.integer = *integer;
  } else if (const std::optional<double> number = ParseNumber(digits)) {
    tree.kind = Tree::Kind::kNumber;
    tree.number = *number;
  }
  return tree;
}

}  // namespace pushpull
