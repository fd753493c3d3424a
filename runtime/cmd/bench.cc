// SPDX-License-Identifier: Apache-2.0
//
// `pushpull bench`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/bench/collective_bench.h"
#include "runtime/bench/collective_rank.h"
#include "runtime/bench/collective_report.h"
#include "runtime/bench/report.h"
#include "runtime/bench/sync_bench.h"
#include "runtime/bench/sync_worker.h"
#include "runtime/bench/tensor_mix.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"

namespace pushpull {
namespace {

// Runs a benchmark until it has ended or a signal stops it.
template <typename Measured, typename Run>
absl::StatusOr<Measured> RunUntilSignal(std::atomic<int>& signal, Run run) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  EventLoop loop("pp-signals");
  std::atomic<bool> is_stopped = false;
  absl::StatusOr<Measured> measured = absl::UnknownError("");
  {
    const StopSignals signals(loop, [&](StopSignal stop) {
      signal = stop.number;
      is_stopped = true;
    });
    measured = run(self, is_stopped);
  }
  loop.Stop();
  return measured;
}

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
  std::atomic<int> signal = 0;
  const absl::StatusOr<SyncMeasurements> measured = RunUntilSignal<SyncMeasurements>(
      signal, [&](const std::string& self, const std::atomic<bool>& is_stopped) {
        return RunSyncBench(flags.options, self, Environment(), is_stopped);
      });
  if (signal != 0) return ExitCodeOf(signal);
  if (!measured.ok()) return Report(measured.status());
  const SyncSummary summary = Summarize(flags.options, *measured);
  const std::string text = flags.is_json ? ToJson(flags.options, summary, measured->is_verified)
                                         : ToText(flags.options, summary, measured->is_verified);
  std::fputs(text.c_str(), stdout);
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

// Not for users: the worker program of the benchmark's job.
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

struct CollectiveFlags {
  CollectiveOptions options;
  std::string collective = "all-reduce";
  std::string algorithms = "auto";
  std::string bytes = "160M";
  std::string places;
  bool is_json = false;
};

// Sets `target` to the value of `parsed`, or returns an error that names the option.
template <typename Value>
absl::Status TakeParsed(const char* option, absl::StatusOr<Value> parsed, Value& target) {
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat("--", option, ": ", parsed.status().message()));
  target = *std::move(parsed);
  return absl::OkStatus();
}

absl::Status TakeCollectiveTexts(CollectiveFlags& flags) {
  CollectiveOptions& options = flags.options;
  PUSHPULL_RETURN_IF_ERROR(
      TakeParsed("collective", ParseCollective(flags.collective), options.collective));
  PUSHPULL_RETURN_IF_ERROR(
      TakeParsed("algorithm", ParseAlgorithms(flags.algorithms), options.algorithms));
  PUSHPULL_RETURN_IF_ERROR(TakeParsed("bytes", ParseByteList(flags.bytes), options.bytes));
  PUSHPULL_RETURN_IF_ERROR(TakeParsed("at", ParsePlaces(flags.places), options.places));
  return Validate(options);
}

int RunCollective(CollectiveFlags& flags) {
  const absl::Status valid = TakeCollectiveTexts(flags);
  if (!valid.ok()) return Report(valid);
  using Measured = std::vector<CollectiveMeasurement>;
  std::atomic<int> signal = 0;
  const absl::StatusOr<Measured> measured = RunUntilSignal<Measured>(
      signal, [&](const std::string& self, const std::atomic<bool>& is_stopped) {
        return RunCollectiveBench(flags.options, self, Environment(), is_stopped);
      });
  if (signal != 0) return ExitCodeOf(signal);
  if (!measured.ok()) return Report(measured.status());
  const std::string text =
      flags.is_json ? ToJson(flags.options, *measured) : ToText(flags.options, *measured);
  std::fputs(text.c_str(), stdout);
  const bool is_verified = std::all_of(
      measured->begin(), measured->end(), [](const auto& one) { return one.is_verified; });
  return is_verified ? kExitDone : kExitFailed;
}

void AddCollectiveCommand(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "collective",
      "Times collectives between processes of this machine, without servers, and verifies every "
      "element");
  const auto flags = std::make_shared<CollectiveFlags>();
  command->add_option("--ranks", flags->options.ranks, "Processes")->capture_default_str();
  command
      ->add_option(
          "--collective", flags->collective, "all-reduce, reduce-scatter, all-gather or broadcast")
      ->capture_default_str();
  command
      ->add_option("--algorithm",
                   flags->algorithms,
                   "ring, bidirectional-ring, tree, halving-doubling, root, host, split, auto; "
                   "several with commas, or all")
      ->capture_default_str();
  command
      ->add_option("--bytes",
                   flags->bytes,
                   "Of each rank's array, several with commas; 1K is 1000, 1Ki 1024")
      ->capture_default_str();
  command->add_option("--channel", flags->options.channel, "shm or tcp")->capture_default_str();
  command->add_option(
      "--at",
      flags->places,
      "Network namespace and address of each rank, as ring0=10.0.0.1,ring1=10.0.0.2; "
      "needs root, and --channel tcp");
  command->add_flag("--private",
                    flags->options.has_private_arrays,
                    "Over shm: arrays in private memory, which are copied through a ring");
  command
      ->add_option("--repeats", flags->options.repeats, "Of each call, after one that is not timed")
      ->capture_default_str();
  command->add_flag("--json", flags->is_json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = RunCollective(*flags); });
}

// Not for users: a process of `bench collective`.
void AddCollectiveRankCommand(CLI::App& bench, int& exit_code) {
  struct RankFlags {
    std::string control;
    std::string address;
    uint32_t rank = 0;
  };
  CLI::App* command = bench.add_subcommand("collective-rank", "A rank of `bench collective`");
  command->group("");
  const auto flags = std::make_shared<RankFlags>();
  command->add_option("--control", flags->control)->required();
  command->add_option("--rank", flags->rank)->required();
  command->add_option("--address", flags->address)->required();
  command->callback([flags, &exit_code] {
    exit_code = Report(RunCollectiveRank(flags->control, flags->rank, flags->address));
  });
}

}  // namespace

void AddBenchCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine, and this build on it");
  command->require_subcommand(1);
  AddSyncCommand(*command, exit_code);
  AddSyncWorkerCommand(*command, exit_code);
  AddCollectiveCommand(*command, exit_code);
  AddCollectiveRankCommand(*command, exit_code);
}

}  // namespace pushpull
