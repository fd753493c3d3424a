// SPDX-License-Identifier: Apache-2.0
//
// `pushpull validate`.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/manifest.h"

namespace pushpull {
namespace {

struct ValidateFlags {
  std::string manifest;
  std::vector<std::string> overrides;
  std::string runtime;
  bool is_json = false;
};

void PrintJson(const ParsedJob& parsed) {
  nlohmann::json problems = nlohmann::json::array();
  for (const ManifestProblem& problem : parsed.problems)
    problems.push_back({{"field", problem.field}, {"text", problem.text}});
  const nlohmann::json result = {{"valid", parsed.problems.empty()},
                                 {"job", parsed.job.metadata.name},
                                 {"problems", problems},
                                 {"ignored", parsed.ignored}};
  std::printf("%s\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void PrintText(const std::string& path, const ParsedJob& parsed) {
  // Each line begins with the file, like a compiler's.
  for (const ManifestProblem& problem : parsed.problems)
    std::fprintf(stderr, "%s: %s\n", path.c_str(), ToString(problem).c_str());
  if (!parsed.problems.empty()) return;
  const std::string ignored = DescribeIgnored(path, parsed);
  if (!ignored.empty()) std::fprintf(stderr, "%s\n", ignored.c_str());
  const std::string& runtime = parsed.job.spec.runtime_ref;
  if (parsed.is_runtime || !runtime.empty()) {
    std::printf("%s: valid as far as it goes: %s %s%s%s\n",
                path.c_str(),
                parsed.is_runtime ? "runtime" : "job",
                parsed.job.metadata.name.c_str(),
                runtime.empty() ? "" : "; --runtime FILE judges it together with ",
                runtime.c_str());
    return;
  }
  std::printf("%s: valid: job %s, %d servers, %d workers\n",
              path.c_str(),
              parsed.job.metadata.name.c_str(),
              parsed.job.spec.servers.replicas,
              parsed.job.spec.workers.replicas);
}

int Validate(const ValidateFlags& flags) {
  const absl::StatusOr<ParsedJob> parsed =
      ReadManifest(flags.manifest, flags.overrides, flags.runtime);
  if (!parsed.ok()) return Report(parsed.status());
  if (flags.is_json) {
    PrintJson(*parsed);
  } else {
    PrintText(flags.manifest, *parsed);
  }
  return parsed->problems.empty() ? kExitDone : kExitUsage;
}

}  // namespace

void AddValidateCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("validate", "Say what the API server would say of a manifest");
  const auto flags = std::make_shared<ValidateFlags>();
  command->add_option("manifest", flags->manifest, "File with a TrainingJob, or a TrainingRuntime")
      ->required();
  command->add_option(
      "--runtime", flags->runtime, "File with the TrainingRuntime that spec.runtimeRef names");
  command->add_option("--set", flags->overrides, "Overrides a field: spec.servers.replicas=4")
      ->allow_extra_args(false);
  command->add_flag("--json",
                    flags->is_json,
                    "As JSON: valid, job, problems with field and text, ignored documents");
  command->callback([flags, &exit_code] { exit_code = Validate(*flags); });
}

}  // namespace pushpull
