// SPDX-License-Identifier: Apache-2.0
//
// pushpull-train: a worker's program that trains an image classifier. `pushpull run` or the
// operator starts one for each worker and sets its environment. Exit codes: 0 done, 1 the training
// failed, 2 invalid usage, 3 the data set or the coordinator is unreachable, 143 left the job after
// SIGTERM.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "pushpull/job.h"

#include "runtime/base/environment.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/termination_message.h"
#include "runtime/tensor/codec.h"
#include "runtime/train/trainer.h"

namespace pushpull {
namespace {

// Values as given that TrainingSettings has in another form.
struct Flags {
  std::string model = "mlp";
  std::string optimizer = "sgd";
  std::string codec = "none";
  bool bypasses_codec = false;
  std::optional<double> learning_rate;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::string data = kFashionMnistDirectory;
  std::optional<int> threads;
  double start_timeout_seconds = 300;
  double step_timeout_seconds = 60;
  std::optional<uint64_t> poisoned_step;
  uint32_t poisoned_worker = 0;
  TrainingSettings settings;
};

struct OptimizerDefaults {
  OptimizerKind kind;
  double learning_rate;  // for a step of 64 samples
  double weight_decay;
  double epsilon;
};

// Learning rates are tuned on Fashion-MNIST over 3 epochs; the rest are PyTorch's defaults.
const std::map<std::string, OptimizerDefaults>& Optimizers() {
  static const std::map<std::string, OptimizerDefaults> optimizers = {
      {"sgd", {OptimizerKind::kSgd, 0.02, 0, 1e-8}},
      {"adagrad", {OptimizerKind::kAdagrad, 0.01, 0, 1e-10}},
      {"adam", {OptimizerKind::kAdam, 0.0005, 0, 1e-8}},
      {"adamw", {OptimizerKind::kAdamW, 0.0005, 0.01, 1e-8}}};
  return optimizers;
}

void AddModelFlags(CLI::App& app, Flags& flags) {
  TrainingSettings& settings = flags.settings;
  app.add_option("--model", flags.model, "Network: mlp (784-256-10) or cnn (two convolutions)")
      ->check(CLI::IsMember({"mlp", "cnn"}))
      ->capture_default_str();
  app.add_option("--data", flags.data, "Folder with the IDX files of Fashion-MNIST")
      ->capture_default_str();
  app.add_option("--epochs", settings.epochs, "Passes over the training images")
      ->capture_default_str();
  app.add_option("--steps", settings.steps_max, "Stop after this many steps at the latest");
  app.add_option("--batch", settings.batch, "Samples per step and worker")->capture_default_str();
  app.add_option(
         "--seed", settings.seed, "Seed of the initial values and of the order of the samples")
      ->capture_default_str();
  app.add_option(
         "--eval-every", settings.evaluate_every, "Epochs between evaluations; 0: only at the end")
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Compute threads; default: OMP_NUM_THREADS, else 1")
      ->check(CLI::Range(1, 1024));
}

void AddOptimizerFlags(CLI::App& app, Flags& flags) {
  TrainingSettings& settings = flags.settings;
  app.add_option("--optimizer", flags.optimizer, "sgd, adagrad, adam or adamw, on the servers")
      ->check(CLI::IsMember({"sgd", "adagrad", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option(
         "--codec",
         flags.codec,
         "Encoding of gradients on the wire: none (float32), fp16, bf16, int8 (stochastic "
         "rounding), topk (the largest 1 %) or onebit (signs); the last two with error feedback")
      ->check(CLI::IsMember({"none", "fp16", "bf16", "int8", "topk", "onebit"}))
      ->capture_default_str();
  app.add_flag("--bypass-codec",
               flags.bypasses_codec,
               "Bypass the codec where steps are faster without; ignored by deterministic jobs");
  app.add_option("--learning-rate",
                 flags.learning_rate,
                 "For a step of --base-batch samples; scaled to the samples of all workers. "
                 "Default: 0.02 for sgd (0.14 if the default momentum is 0.3), 0.01 for adagrad, "
                 "0.0005 for adam and adamw");
  app.add_option(
         "--base-batch", settings.base_batch, "Samples per step that --learning-rate is for")
      ->capture_default_str();
  app.add_option(
      "--momentum", flags.momentum, "sgd only. Default: 0.9; with the codecs topk and onebit 0.3");
  app.add_option("--weight-decay", flags.weight_decay, "Default: 0.01 with adamw, else 0");
  app.add_flag("--anneal,!--no-anneal",
               settings.anneals,
               "Decrease the learning rate linearly to 0 at the last step (default), or not");
  app.add_option("--warmup-epochs",
                 settings.warmup_epochs,
                 "Epochs over which the learning rate rises to its scaled value")
      ->capture_default_str();
}

void AddJobFlags(CLI::App& app, Flags& flags) {
  app.add_option("--start-timeout-seconds",
                 flags.start_timeout_seconds,
                 "Timeout for the coordinator, then for all servers and workers")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--step-timeout-seconds",
                 flags.step_timeout_seconds,
                 "Timeout for the servers' answer in a step")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  CLI::Option* poisoned_step = app.add_option(
      "--inject-nan-at-step", flags.poisoned_step, "For tests: a gradient of this step has a NaN");
  app.add_option("--inject-nan-worker", flags.poisoned_worker, "Index of the worker with the NaN")
      ->needs(poisoned_step)
      ->capture_default_str();
}

// What topk and onebit send late is already a sum over many steps; momentum would spread it over
// just as many again. With less momentum and a correspondingly higher learning rate a gradient has
// the same total effect on the parameters (docs/decisions/0039-momentum-with-error-feedback.md).
constexpr double kMomentum = 0.9;
constexpr double kMomentumWithMemory = 0.3;

absl::StatusOr<OptimizerSpec> OptimizerFromFlags(const Flags& flags, Codec codec) {
  const OptimizerDefaults& defaults = Optimizers().at(flags.optimizer);
  const bool is_sgd = defaults.kind == OptimizerKind::kSgd;
  if (flags.momentum.has_value() && !is_sgd) {
    return absl::InvalidArgumentError(
        absl::StrCat("--momentum: works with sgd only, the optimizer is ", flags.optimizer));
  }
  double learning_rate = defaults.learning_rate;
  double momentum = kMomentum;
  if (HasMemory(codec) && !flags.momentum.has_value()) {
    momentum = kMomentumWithMemory;
    if (is_sgd) learning_rate *= (1 - kMomentumWithMemory) / (1 - kMomentum);
  }
  return OptimizerSpec{.kind = defaults.kind,
                       .learning_rate = flags.learning_rate.value_or(learning_rate),
                       .momentum = is_sgd ? flags.momentum.value_or(momentum) : 0,
                       .weight_decay = flags.weight_decay.value_or(defaults.weight_decay),
                       .epsilon = defaults.epsilon};
}

absl::StatusOr<TrainingSettings> SettingsFromFlags(const Flags& flags, WorkerId worker) {
  TrainingSettings settings = flags.settings;
  PUSHPULL_ASSIGN_OR_RETURN(settings.model, ParseModelKind(flags.model));
  PUSHPULL_ASSIGN_OR_RETURN(settings.codec, ParseCodec(flags.codec));
  PUSHPULL_ASSIGN_OR_RETURN(settings.optimizer, OptimizerFromFlags(flags, settings.codec));
  if (flags.bypasses_codec && settings.codec == Codec::kNone)
    return absl::InvalidArgumentError("--bypass-codec: needs a --codec other than none");
  settings.start_timeout = FromSeconds(flags.start_timeout_seconds);
  settings.step_timeout = FromSeconds(flags.step_timeout_seconds);
  if (flags.poisoned_step.has_value() && worker == WorkerId{flags.poisoned_worker}) {
    settings.poisoned_step = Step{*flags.poisoned_step};
  }
  PUSHPULL_RETURN_IF_ERROR(Validate(settings));
  return settings;
}

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    environment.insert(absl::StrSplit(*entry, absl::MaxSplits('=', 1)));
  return environment;
}

int ThreadsFrom(const Flags& flags) {
  if (flags.threads.has_value()) return *flags.threads;
  int threads = 0;
  const bool is_set = absl::SimpleAtoi(VariableOf(Environment(), "OMP_NUM_THREADS"), &threads);
  return is_set && threads > 0 ? threads : 1;
}

int Report(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "pushpull-train: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Another start would end the same way: writes a termination message that says so.
int ReportFinal(const absl::Status& status, int exit_code) {
  WriteFinalMessage(VariableOf(Environment(), kTerminationLogVariable), status.message());
  return Report(status, exit_code);
}

bool IsNotReachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

int Run(const Flags& flags) {
  absl::StatusOr<JobOptions> options = JobOptions::FromEnvironment(Environment());
  if (!options.ok()) return ReportFinal(options.status(), kExitUsage);
  options->bypasses_codecs = flags.bypasses_codec;
  const absl::StatusOr<TrainingSettings> settings = SettingsFromFlags(flags, options->worker);
  if (!settings.ok()) return ReportFinal(settings.status(), kExitUsage);

  const absl::StatusOr<ImageSet> training = ReadFashionMnist(flags.data, ImageSplit::kTrain);
  if (!training.ok()) return ReportFinal(training.status(), kExitNotReachable);
  const absl::StatusOr<ImageSet> test = ReadFashionMnist(flags.data, ImageSplit::kTest);
  if (!test.ok()) return ReportFinal(test.status(), kExitNotReachable);

  SetComputeThreads(ThreadsFrom(flags));
  absl::StatusOr<std::unique_ptr<Job>> job =
      Job::Join(*options, Deadline::After(settings->start_timeout));
  if (!job.ok()) {
    return Report(job.status(), IsNotReachable(job.status()) ? kExitNotReachable : kExitFailed);
  }
  const absl::StatusOr<int> exit_code = Train(*std::move(job), *training, *test, *settings, stdout);
  return exit_code.ok() ? *exit_code : Report(exit_code.status(), kExitFailed);
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Trains an image classifier on Fashion-MNIST as one worker of a Pushpull job.\n"
      "Started by `pushpull run` or the operator, which set PUSHPULL_JOB, PUSHPULL_INDEX and "
      "PUSHPULL_COORDINATOR.",
      "pushpull-train"};
  Flags flags;
  AddModelFlags(app, flags);
  AddOptimizerFlags(app, flags);
  AddJobFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return kExitDone;
    WriteFinalMessage(VariableOf(Environment(), kTerminationLogVariable), error.what());
    return kExitUsage;
  }
  // LibTorch throws exceptions.
  try {
    return Run(flags);
  } catch (const std::exception& error) {
    return Report(absl::InternalError(error.what()), kExitFailed);
  }
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  return pushpull::Main(argc, argv);
}
