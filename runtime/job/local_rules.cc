// SPDX-License-Identifier: Apache-2.0
//
// See local_rules.h.
#include "runtime/job/local_rules.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pushpull {

std::vector<std::string> LocallyIgnoredFields(const TrainingJob& job) {
  constexpr absl::string_view kProgramsOfThisMachine = "processes run this machine's programs";
  constexpr absl::string_view kNoPods = "there are no pods";
  std::vector<std::string> lines;
  const auto ignore = [&lines](bool is_set, absl::string_view field, absl::string_view why) {
    if (is_set) lines.push_back(absl::StrCat(field, ": is ignored, ", why));
  };
  const TrainingJobSpec& spec = job.spec;
  ignore(!spec.image.empty(), "spec.image", kProgramsOfThisMachine);
  ignore(!spec.servers.image.empty(), "spec.servers.image", kProgramsOfThisMachine);
  ignore(!spec.servers.resources_json.empty(), "spec.servers.resources", kNoPods);
  ignore(!spec.servers.template_json.empty(), "spec.servers.template", kNoPods);
  ignore(!spec.workers.resources_json.empty(), "spec.workers.resources", kNoPods);
  ignore(!spec.workers.template_json.empty(), "spec.workers.template", kNoPods);
  ignore(spec.scheduling.has_value(), "spec.scheduling", kNoPods);
  ignore(spec.security.network_policy.has_value(),
         "spec.security.networkPolicy",
         "the members talk over this machine's loopback");
  return lines;
}

namespace {

// What the manifest can say and this version cannot do yet. Refused: a job that quietly trains in
// another way than it was told to is worse than one that does not start.
void AddNotThereYet(const TrainingJobSpec& spec, std::vector<ManifestProblem>& problems) {
  const auto refuse = [&problems](
                          bool is_asked_for, absl::string_view field, absl::string_view instead) {
    if (!is_asked_for) return;
    problems.push_back({.field = std::string(field),
                        .text = absl::StrCat("is not there yet in this version; ", instead)});
  };
  refuse(spec.sync.mode == SyncMode::kAllReduce, "spec.sync.mode", "use Sync, Async or Bounded");
}

// A server in a worker's pod is there to share memory with it, which all processes here do.
void AddForPodsOnly(const TrainingJobSpec& spec, std::vector<ManifestProblem>& problems) {
  if (!spec.workers.colocated_server) return;
  problems.push_back({.field = "spec.workers.colocatedServer",
                      .text = "is for pods: here all processes share memory; use false"});
}

}  // namespace

absl::StatusOr<std::string> CheckpointFolder(const CheckpointSpec& checkpoint,
                                             const std::string& workdir) {
  constexpr absl::string_view kScheme = "file://";
  std::string folder;
  if (!checkpoint.uri.empty()) {
    if (!absl::StartsWith(checkpoint.uri, "file:///")) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.checkpoint.uri: must be a folder such as file:///var/checkpoints, is ",
                       checkpoint.uri));
    }
    folder = checkpoint.uri.substr(kScheme.size());
  } else if (workdir.empty()) {
    return absl::InvalidArgumentError(
        "spec.checkpoint.claim: is mounted somewhere; say where with --checkpoints");
  } else {
    folder = absl::StrCat(workdir, "/claims/", checkpoint.claim, checkpoint.path);
  }
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

std::vector<ManifestProblem> LocalProblems(const TrainingJob& job) {
  std::vector<ManifestProblem> problems;
  AddNotThereYet(job.spec, problems);
  AddForPodsOnly(job.spec, problems);
  if (job.spec.command.empty()) {
    problems.push_back({.field = "spec.command",
                        .text = "must be set to run locally, where no image says what to run"});
  }
  if (job.spec.checkpoint) {
    const absl::Status folder = CheckpointFolder(*job.spec.checkpoint, "/").status();
    constexpr absl::string_view kField = "spec.checkpoint.uri";
    if (!folder.ok()) {
      problems.push_back({.field = std::string(kField),
                          .text = std::string(folder.message().substr(kField.size() + 2))});
    }
  }
  for (size_t i = 0; i < job.spec.env.size(); ++i) {
    if (job.spec.env[i].value_from_json.empty()) continue;
    problems.push_back({.field = JoinPath(JoinPath("spec.env", i), "valueFrom"),
                        .text = "cannot be read without a cluster; give the value itself"});
  }
  return problems;
}

}  // namespace pushpull
