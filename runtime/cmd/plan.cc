// SPDX-License-Identifier: Apache-2.0
//
// `pushpull plan`.
#include "runtime/plan/plan.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/bench/tensor_mix.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/topology_file.h"
#include "runtime/plan/detect.h"
#include "runtime/plan/nvidia_smi.h"
#include "runtime/plan/parse_topology.h"

namespace pushpull {
namespace {

struct PlanFlags {
  std::string topology;
  bool is_detected = false;
  std::string sysfs = "/sys";
  std::string bytes = "160M";
  double compute_seconds = 0;
  int batch = 0;
  bool is_json = false;
};

constexpr char kByHand[] =
    "docs/planning.md has every field of a topology, runtime/examples/topologies has files to copy";

// What a command prints, at most a megabyte of it; empty if there is no such command. The command
// is ended after 10 s, because a driver may hang.
std::string OutputOf(const std::string& command) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  std::string output;
  std::FILE* pipe = popen(absl::StrCat("timeout 10 ", command, " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  for (size_t got = 1; got > 0 && output.size() < kBytesMax;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe);
    output.append(buffer.data(), got);
  }
  return pclose(pipe) == 0 ? output : "";
}

absl::StatusOr<PlanRequest> RequestFrom(const PlanFlags& flags) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(flags.bytes);
  if (!bytes.ok())
    return absl::InvalidArgumentError(absl::StrCat("--bytes: ", bytes.status().message()));
  if ((flags.compute_seconds != 0) != (flags.batch != 0)) {
    return absl::InvalidArgumentError(
        "--compute-seconds and --batch: one needs the other: how long one worker computes for so "
        "many samples");
  }
  if (!std::isfinite(flags.compute_seconds) || flags.compute_seconds < 0)
    return absl::InvalidArgumentError("--compute-seconds: must be above 0");
  if (flags.batch < 0) return absl::InvalidArgumentError("--batch: must be above 0");
  return PlanRequest{static_cast<double>(*bytes), flags.compute_seconds, flags.batch};
}

// The topology of this machine. Also prints what was found: as a file to start from, or to standard
// error if standard output is JSON.
absl::StatusOr<Topology> Detect(const PlanFlags& flags) {
  const SmiLinks smi =
      ReadSmi(OutputOf("nvidia-smi topo -m"), OutputOf("nvidia-smi nvlink --status"));
  const Detected detected = DetectTopology(flags.sysfs, smi);
  std::FILE* stream = flags.is_json ? stderr : stdout;
  for (const std::string& note : detected.notes) std::fprintf(stream, "# %s\n", note.c_str());
  const Machine& machine = detected.topology.machine;
  if (machine.gpus == 0 && machine.nics.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("plan --detect: found neither a GPU nor a NIC with a known speed; write the "
                     "topology by hand: ",
                     kByHand));
  }
  const std::string yaml = ToYaml(detected.topology);
  std::fprintf(stream, "%s\n", yaml.c_str());
  const ParsedTopology parsed = ParseTopology(yaml);
  if (parsed.problems.empty()) return parsed.topology;
  std::string lines =
      "plan --detect: this machine alone has nothing to plan; save what was found "
      "as a file and complete it: ";
  for (const ManifestProblem& problem : parsed.problems)
    absl::StrAppend(&lines, ToString(problem), "; ");
  return absl::FailedPreconditionError(absl::StrCat(lines, kByHand));
}

absl::Status PrintPlan(const PlanFlags& flags) {
  if (flags.is_detected != flags.topology.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: needs either a file with a topology or --detect; ", kByHand));
  }
  PUSHPULL_ASSIGN_OR_RETURN(const PlanRequest request, RequestFrom(flags));
  PUSHPULL_ASSIGN_OR_RETURN(const Topology topology,
                            flags.is_detected ? Detect(flags) : LoadTopology(flags.topology));
  const Plan plan = MakePlan(topology, request);
  std::fputs((flags.is_json ? ToJson(plan) : ToText(plan)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "plan", "Predict how long each way to synchronize takes on a topology, best first");
  const auto flags = std::make_shared<PlanFlags>();
  command->add_option("topology",
                      flags->topology,
                      "File with a Topology: GPUs, links, machines, racks (docs/planning.md)");
  command->add_flag("--detect", flags->is_detected, "Of this machine, from sysfs and nvidia-smi");
  command->add_option("--sysfs", flags->sysfs, "What --detect reads")->capture_default_str();
  command->add_option("--bytes", flags->bytes, "Of one worker's gradient; 1K is 1000, 1Ki 1024")
      ->capture_default_str();
  command->add_option("--compute-seconds",
                      flags->compute_seconds,
                      "How long one worker computes for a batch; says from how many workers on "
                      "distribution pays");
  command->add_option("--batch", flags->batch, "The samples of that batch");
  command->add_flag("--json", flags->is_json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = Report(PrintPlan(*flags)); });
}

}  // namespace pushpull
