// SPDX-License-Identifier: Apache-2.0
//
// `pushpull-operator`.
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "operator/cmd/build_info.h"
#include "operator/cmd/operator_process.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"

namespace pushpull_operator {
namespace {

struct Flags {
  std::string config;
  std::string kubeconfig;
  std::string context;
  bool is_json = false;
};

// Called before any thread exists.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? "" : value;
}

// The pod's name, with a random number that distinguishes restarts.
std::string NewInstance() {
  std::string name = Variable("POD_NAME");
  if (name.empty()) {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) == 0) name = host.data();
  }
  std::random_device random;
  return absl::StrFormat("%s_%08x%08x", name, random(), random());
}

absl::StatusOr<ClusterAccess> FindAccess(const Flags& flags) {
  if (!flags.kubeconfig.empty()) return LoadKubeconfig(flags.kubeconfig, flags.context);
  absl::StatusOr<ClusterAccess> access =
      InClusterAccess(Variable("KUBERNETES_SERVICE_HOST"), Variable("KUBERNETES_SERVICE_PORT"));
  if (absl::IsFailedPrecondition(access.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("no API server: pass --kubeconfig FILE (", access.status().message(), ")"));
  }
  return access;
}

absl::StatusOr<OperatorStart> Prepare(const Flags& flags) {
  if (flags.config.empty()) {
    return absl::InvalidArgumentError("--config FILE is missing (see --help)");
  }
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, pushpull::ReadTextFile(flags.config));
  OperatorStart start{.instance = NewInstance()};
  PUSHPULL_ASSIGN_OR_RETURN(start.config, ParseConfig(text, flags.config));
  PUSHPULL_ASSIGN_OR_RETURN(start.access, FindAccess(flags));
  if (flags.kubeconfig.empty()) start.pod_namespace = start.access.default_namespace;
  return start;
}

int Run(const Flags& flags) {
  const absl::StatusOr<OperatorStart> start = Prepare(flags);
  return start.ok() ? RunOperator(*start) : pushpull::Report(start.status(), kProgram);
}

int PrintVersion(const Flags& flags) {
  if (flags.is_json) {
    std::printf("{\"version\": \"%s\", \"commit\": \"%s\"}\n", kVersion, kCommit);
  } else {
    std::printf("pushpull-operator %s (%s)\n", kVersion, kCommit);
  }
  return pushpull::kExitDone;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "The operator of Pushpull: runs TrainingJobs in a Kubernetes cluster.\n"
      "Usually started by the Helm chart; by hand: pushpull-operator --config FILE --kubeconfig "
      "FILE",
      "pushpull-operator");
  Flags flags;
  app.add_option(
      "--config", flags.config, "Configuration file, as rendered by the chart (operator.yaml)");
  CLI::Option* kubeconfig =
      app.add_option("--kubeconfig",
                     flags.kubeconfig,
                     "kubeconfig of the cluster; default: the pod's service account");
  app.add_option("--context", flags.context, "Context of the kubeconfig; default: the current one")
      ->needs(kubeconfig);
  CLI::App* version = app.add_subcommand("version", "Print version and commit");
  version->add_flag("--json", flags.is_json, "As JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "pushpull-operator: %s (see --help)\n", error.what());
    return pushpull::kExitUsage;
  }
  return version->parsed() ? PrintVersion(flags) : Run(flags);
}

// TLS handshakes of the worker threads briefly allocate a lot. With glibc's one heap per thread,
// each thread would keep that memory.
constexpr int kHeapsMax = 2;

// Blocks from this size on, those of long answers, return to the system when they are freed. Left
// alone, glibc raises the threshold to the largest block that it has freed, and keeps later ones.
constexpr int kMappedBytes = 256 << 10;

}  // namespace
}  // namespace pushpull_operator

int main(int argc, char** argv) {
  try {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread
    mallopt(M_ARENA_MAX, pushpull_operator::kHeapsMax);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): likewise
    mallopt(M_MMAP_THRESHOLD, pushpull_operator::kMappedBytes);
    pushpull::BlockStopSignals();
    return pushpull_operator::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pushpull-operator: %s\n", error.what());
    return pushpull::kExitFailed;
  }
}
