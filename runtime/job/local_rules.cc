// SPDX-License-Identifier: Apache-2.0
//
// See local_rules.h.
#include "runtime/job/local_rules.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pushpull {

std::vector<std::string> LocallyIgnoredFields(const TrainingJob& job, int num_gpus) {
  constexpr absl::string_view kProgramsOfThisMachine = "processes run this machine's programs";
  constexpr absl::string_view kNoPods = "there are no pods";
  constexpr absl::string_view kNoCluster = "there is no cluster";
  constexpr absl::string_view kTlsFolder = "PUSHPULL_TLS_DIR decides about TLS here";
  std::vector<std::string> lines;
  const auto ignore = [&lines](bool is_set, absl::string_view field, absl::string_view why) {
    if (is_set) lines.push_back(absl::StrCat(field, ": is ignored, ", why));
  };
  const TrainingJobSpec& spec = job.spec;
  // The namespace is part of the path of checkpoints.
  ignore(
      !job.metadata.namespace_name.empty() && !spec.checkpoint, "metadata.namespace", kNoCluster);
  ignore(!spec.image.empty(), "spec.image", kProgramsOfThisMachine);
  ignore(!spec.servers.image.empty(), "spec.servers.image", kProgramsOfThisMachine);
  ignore(!spec.servers.resources_json.empty(), "spec.servers.resources", kNoPods);
  ignore(!spec.servers.template_json.empty(), "spec.servers.template", kNoPods);
  ignore(spec.workers.gpus_per_worker > 0 && num_gpus == 0,
         "spec.workers.gpusPerWorker",
         "this machine shows no GPU");
  ignore(!spec.workers.resources_json.empty(), "spec.workers.resources", kNoPods);
  ignore(!spec.workers.template_json.empty(), "spec.workers.template", kNoPods);
  ignore(!spec.coordinator.resources_json.empty(), "spec.coordinator.resources", kNoPods);
  ignore(!spec.coordinator.template_json.empty(), "spec.coordinator.template", kNoPods);
  ignore(spec.pod_defaults != PodDefaults{}, "spec.podDefaults", kNoPods);
  ignore(spec.scaling != ScalingSpec{}, "spec.scaling", "`pushpull scale` decides when to resize");
  ignore(spec.ttl_after_finished.has_value(), "spec.ttlAfterFinishedSeconds", kNoCluster);
  ignore(spec.cleanup != CleanupPolicy::kRunning, "spec.cleanup", kNoPods);
  ignore(!spec.managed_by.empty(), "spec.managedBy", kNoCluster);
  ignore(spec.scheduling.has_value(), "spec.scheduling", kNoPods);
  ignore(spec.security.tls != TlsMode::kAuto, "spec.security.tls", kTlsFolder);
  ignore(!spec.security.secret_name.empty(), "spec.security.secretName", kTlsFolder);
  ignore(spec.security.network_policy.has_value(),
         "spec.security.networkPolicy",
         "the members talk over this machine's loopback");
  return lines;
}

std::vector<ManifestProblem> LocalProblems(const TrainingJob& job, int num_gpus) {
  std::vector<ManifestProblem> problems;
  const auto refuse = [&problems](bool is_set, const std::string& field, const char* why) {
    if (is_set) problems.push_back({field, why});
  };
  const TrainingJobSpec& spec = job.spec;
  if (num_gpus > 0 && spec.workers.gpus_per_worker > num_gpus) {
    problems.push_back({"spec.workers.gpusPerWorker",
                        absl::StrCat("this machine shows ",
                                     num_gpus,
                                     num_gpus == 1 ? " GPU" : " GPUs",
                                     ": must be at most that, is ",
                                     spec.workers.gpus_per_worker)});
  }
  // A server in a worker's pod shares memory with it, which all local processes do.
  refuse(spec.workers.colocated_server,
         "spec.workers.colocatedServer",
         "is for pods: here all processes share memory; use false");
  refuse(
      spec.suspend, "spec.suspend", "is for Kubernetes; use false, stop a local job with SIGTERM");
  refuse(spec.command.empty(),
         "spec.command",
         "must be set to run locally, where no image says what to run");
  for (size_t i = 0; i < spec.env.size(); ++i) {
    refuse(!spec.env[i].value_from_json.empty(),
           JoinPath(JoinPath("spec.env", i), "valueFrom"),
           "cannot be read without a cluster; give the value itself");
  }
  return problems;
}

}  // namespace pushpull
