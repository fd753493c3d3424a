// SPDX-License-Identifier: Apache-2.0
//
// Text -> tree -> overrides -> structs -> rules; see parse.h.
#include "runtime/job/parse.h"

#include <optional>

#include "runtime/job/decode.h"
#include "runtime/job/override.h"
#include "runtime/job/tree.h"
#include "runtime/job/validate.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull {

ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides) {
  Problems problems;
  ParsedJob parsed;
  std::optional<Tree> tree = ReadYaml(text, problems);
  if (tree.has_value()) {
    for (const std::string& assignment : overrides) ApplyOverride(assignment, *tree, problems);
    parsed.job = DecodeTrainingJob(*tree, problems);
    CheckRules(parsed.job, problems);
  }
  parsed.problems = problems.Take();
  return parsed;
}

}  // namespace pushpull
