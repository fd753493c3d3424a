// SPDX-License-Identifier: Apache-2.0
//
// `pushpull bench`.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/bench/report.h"
#include "runtime/bench/sync_bench.h"
#include "runtime/bench/sync_worker.h"
#include "runtime/bench/tensor_mix.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"

namespace pushpull {
namespace {

struct SyncFlags {
  SyncOptions options;
  std::string bytes = "160M";
  std::string payload_checksum = "off";
  bool is_json = false;
};

absl::Status TakeTexts(SyncFlags& flags) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(flags.bytes);
  if (!bytes.ok())
    return absl::InvalidArgumentError(absl::StrCat("--bytes: ", bytes.status().message()));
  flags.options.bytes = *bytes;
  flags.options.has_payload_checksum = flags.payload_checksum == "on";
  return Validate(flags.options, Environment());
}

int RunSync(SyncFlags& flags) {
  const absl::Status valid = TakeTexts(flags);
  if (!valid.ok()) return Report(valid);
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  EventLoop loop("pp-signals");
  std::atomic<bool> is_stopped = false;
  std::atomic<int> signal = 0;
  absl::StatusOr<SyncMeasurements> measured = absl::UnknownError("");
  {
    const StopSignals signals(loop, [&](StopSignal stop) {
      signal = stop.number;
      is_stopped = true;
    });
    measured = RunSyncBench(flags.options, self, Environment(), is_stopped);
  }
  loop.Stop();
  if (signal != 0) return ExitCodeOf(signal);
  if (!measured.ok()) return Report(measured.status());
  const SyncSummary summary = Summarize(flags.options, *measured);
  const auto format = flags.is_json ? ToJson : ToText;
  std::fputs(format(flags.options, summary, measured->is_verified).c_str(), stdout);
  return measured->is_verified ? kExitDone : kExitFailed;
}

void AddSyncCommand(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "sync",
      "Times synchronisation steps over local processes, verifies every sum, and measures the raw "
      "link between its rounds");
  const auto flags = std::make_shared<SyncFlags>();
  command->add_option("--workers", flags->options.workers)->capture_default_str();
  command->add_option("--servers", flags->options.servers)->capture_default_str();
  command->add_option("--bytes", flags->bytes, "Of each worker's gradient; 1K is 1000, 1Ki 1024")
      ->capture_default_str();
  command
      ->add_option("--tensors",
                   flags->options.tensors,
                   "mixed, as in an image model; or the size of each, as 4K")
      ->capture_default_str();
  command->add_option("--channel", flags->options.channel, "tcp, shm or grpc")
      ->capture_default_str();
  command->add_option("--steps", flags->options.steps, "Steps that are timed")
      ->capture_default_str();
  command->add_flag("--tls", flags->options.has_tls, "With the certificates of PUSHPULL_TLS_DIR");
  command->add_option("--payload-checksum", flags->payload_checksum, "Of payloads: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command->add_flag("--deterministic",
                    flags->options.is_deterministic,
                    "Contributions are added in the order of the workers");
  command->add_flag("--registered",
                    flags->options.is_registered,
                    "Gradients and sums are read where the other side has them; with shm");
  command->add_flag("--json", flags->is_json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = RunSync(*flags); });
}

// Not for people: what the benchmark's job has as its worker's program.
void AddSyncWorkerCommand(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand("sync-worker", "A worker of `bench sync`");
  command->group("");
  const auto options = std::make_shared<SyncWorkerOptions>();
  command->add_option("--control", options->control)->required();
  command->add_option("--bytes", options->bytes)->required();
  command->add_option("--tensors", options->tensors)->required();
  command->add_flag("--registered", options->is_registered);
  command->callback(
      [options, &exit_code] { exit_code = Report(RunSyncWorker(*options, Environment())); });
}

}  // namespace

void AddBenchCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine, and this build on it");
  command->require_subcommand(1);
  AddSyncCommand(*command, exit_code);
  AddSyncWorkerCommand(*command, exit_code);
}

}  // namespace pushpull
