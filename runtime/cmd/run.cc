// SPDX-License-Identifier: Apache-2.0
//
// `pushpull run`.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"
#include "runtime/cmd/manifest.h"
#include "runtime/cmd/topology_file.h"
#include "runtime/local/launcher.h"

namespace pushpull {
namespace {

struct RunFlags {
  std::string manifest;
  std::vector<std::string> overrides;
  std::string runtime;
  std::string workdir;
  std::string report;
  std::string progress = "auto";
  std::string topology;
  std::string tensorboard;
};

int Run(const RunFlags& flags) {
  const absl::StatusOr<ParsedJob> parsed =
      LoadManifest(flags.manifest, flags.overrides, flags.runtime);
  if (!parsed.ok()) {
    if (!absl::IsInvalidArgument(parsed.status())) return Report(parsed.status());
    std::fprintf(stderr, "%s\n", std::string(parsed.status().message()).c_str());
    return kExitUsage;
  }
  const TrainingJob& job = parsed->job;
  const std::string ignored = DescribeIgnored(flags.manifest, *parsed);
  if (!ignored.empty()) std::fprintf(stderr, "pushpull: %s\n", ignored.c_str());
  std::optional<Topology> topology;
  if (!flags.topology.empty()) {
    absl::StatusOr<Topology> loaded = LoadTopology(flags.topology);
    if (!loaded.ok()) return Report(loaded.status());
    topology = *std::move(loaded);
  }
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  return LaunchJob({.manifest_path = flags.manifest,
                    .merged_manifest = parsed->merged,
                    .overrides = flags.overrides,
                    .workdir = flags.workdir.empty() ? absl::StrCat(".pushpull/", job.metadata.name)
                                                     : flags.workdir,
                    .report_path = flags.report,
                    .shows_progress = flags.progress == "auto",
                    .program = self,
                    .environment = Environment(),
                    .topology = std::move(topology),
                    .tensorboard_folder = flags.tensorboard},
                   job);
}

}  // namespace

void AddRunCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Run a TrainingJob as local processes");
  const auto flags = std::make_shared<RunFlags>();
  command->add_option("manifest", flags->manifest, "File with a TrainingJob")->required();
  command->add_option("--set", flags->overrides, "Overrides a field: spec.servers.replicas=4")
      ->allow_extra_args(false);
  command->add_option(
      "--runtime", flags->runtime, "File with the TrainingRuntime that spec.runtimeRef names");
  command->add_option(
      "--workdir", flags->workdir, "Folder for logs and state; default .pushpull/<job>");
  command->add_option("--report", flags->report, "Writes a JSON report at the end");
  command->add_option("--tensorboard",
                      flags->tensorboard,
                      "Folder for event files of TensorBoard: loss, steps and samples per second, "
                      "time of a synchronization");
  command
      ->add_option(
          "--progress", flags->progress, "auto: a bar on a terminal, plain lines otherwise; none")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str();
  command->add_option("--topology",
                      flags->topology,
                      "File with a Topology, as for plan: each of its machines is a network "
                      "namespace with links of its speeds; needs root");
  command->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace pushpull
