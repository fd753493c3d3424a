// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/references.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

std::string ReplaceReferences(absl::string_view text,
                              const std::map<std::string, std::string>& variables) {
  std::string result;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    absl::StrAppend(&result, text.substr(0, dollar));
    if (dollar == absl::string_view::npos) break;
    text.remove_prefix(dollar);
    const size_t close = absl::StartsWith(text, "$(") ? text.find(')') : absl::string_view::npos;
    if (close == absl::string_view::npos) {
      result += '$';
      text.remove_prefix(absl::StartsWith(text, "$$") ? 2 : 1);
      continue;
    }
    const absl::string_view reference = text.substr(0, close + 1);
    const auto found = variables.find(std::string(reference.substr(2, close - 2)));
    absl::StrAppend(&result,
                    found == variables.end() ? reference : absl::string_view(found->second));
    text.remove_prefix(reference.size());
  }
  return result;
}

}  // namespace pushpull
