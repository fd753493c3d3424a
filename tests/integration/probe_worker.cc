// SPDX-License-Identifier: Apache-2.0
//
// A worker's program for tests on real processes: pushes what it is told to and checks what comes
// back, and says at the end how long its longest step took. Small on purpose: it is also the
// shortest complete program against the C++ API.
//
//   probe_worker --steps 100 --values 1000 --tensors 3 --optimizer sum|sgd|adam|add
//                [--codec none|fp16|bf16|int8|topk|onebit] [--bypass-codec 1] [--large-at-step S]
//                [--dtype float32|float16|bfloat16]
//                [--nan-at-step S --nan-worker W] [--step-milliseconds M] [--weights FILE]
//                [--slow-worker W --slow-factor F]
//                [--stall-at-step S --stall-worker W --stall-until FILE] [--until FILE]
//
// With `sum` every value that is pushed is worker + 1, so the result must be the sum of that over
// the contributors; with all workers there it is workers * (workers + 1) / 2, exactly.
//
// With `add` pushed values are whole and small, and each is subtracted: the last weights are exact
// in whatever order that happened, also where the mode of the job changed meanwhile. Every worker
// counts its own steps, --steps of them, and writes the weights; the last one's have them all.
//
// With --weights every value that is pushed is another, a function of worker, step, tensor and
// place alone; worker 0 writes the last weights, as they are in memory, to FILE.
//
// With --noise-samples B every value that is pushed is normal about 0.02 with deviation 1 /
// sqrt(B), the mean of B samples of deviation 1, and counts as B samples; sgd hardly moves then.
//
//   probe_worker --samples 1000 --epochs 2 --batch 10 [--step-milliseconds M]
//
// With --samples the workers share a data set, and each adds 1 at the place of each of its samples.
// The results, of worker 0, are how often the samples counted: least, most, and all together.
// --slow-worker takes --slow-factor times as long to compute.
//
// With --until nobody computes any longer once FILE is there: a test that does something to a
// running job has it paced, as long as it takes, and lets it go to its end then.
//
// With --registered 1 gradients lie in memory that servers on this host read where it is; with
// --in-place 1 sums are taken where the servers have them, and checked there.
//
// With another --dtype than float32 tensors are of that; the weights are written as float32.
//
// With --deaf 1 a program of steps does not ask whether it is to end.
//
// --join-seconds, 300 unless given: for how long it looks for a coordinator.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "pushpull/job.h"

#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/master_values.h"

namespace pushpull {
namespace {

struct Flags {
  uint64_t steps = 100;
  uint64_t values = 1000;
  uint64_t tensors = 3;
  std::string optimizer = "sum";
  Codec codec = Codec::kNone;
  DType dtype = DType::kFloat32;
  uint64_t bypasses_codec = 0;
  int64_t nan_at_step = -1;
  int64_t large_at_step = -1;
  uint32_t nan_worker = 0;
  int64_t step_milliseconds = 0;
  std::string weights;
  uint64_t samples = 0;
  uint64_t epochs = 1;
  uint64_t batch = 1;
  int64_t slow_worker = -1;
  int64_t slow_factor = 1;
  uint64_t stall_at_step = std::numeric_limits<uint64_t>::max();
  uint64_t stall_worker = 0;
  std::string stall_until;
  std::string until;
  uint64_t is_deaf = 0;
  uint64_t is_registered = 0;
  uint64_t is_in_place = 0;
  uint64_t join_seconds = 300;
  uint64_t noise_samples = 0;
};

constexpr Duration kLookInterval = std::chrono::milliseconds(10);
constexpr Duration kLongestStall = std::chrono::minutes(10);
constexpr Duration kStepTimeout = std::chrono::seconds(120);

std::optional<DType> ParseDType(std::string_view name) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    if (name == ToString(dtype)) return dtype;
  return std::nullopt;
}

absl::StatusOr<Flags> Parse(int argc, char** argv) {
  Flags flags;
  const std::map<std::string, uint64_t*> numbers = {{"--steps", &flags.steps},
                                                    {"--values", &flags.values},
                                                    {"--tensors", &flags.tensors},
                                                    {"--samples", &flags.samples},
                                                    {"--epochs", &flags.epochs},
                                                    {"--stall-at-step", &flags.stall_at_step},
                                                    {"--stall-worker", &flags.stall_worker},
                                                    {"--deaf", &flags.is_deaf},
                                                    {"--registered", &flags.is_registered},
                                                    {"--in-place", &flags.is_in_place},
                                                    {"--join-seconds", &flags.join_seconds},
                                                    {"--bypass-codec", &flags.bypasses_codec},
                                                    {"--noise-samples", &flags.noise_samples},
                                                    {"--batch", &flags.batch}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    const auto number = numbers.find(name);
    bool is_ok = true;
    if (number != numbers.end()) {
      is_ok = absl::SimpleAtoi(value, number->second);
    } else if (name == "--nan-at-step") {
      is_ok = absl::SimpleAtoi(value, &flags.nan_at_step);
    } else if (name == "--large-at-step") {
      is_ok = absl::SimpleAtoi(value, &flags.large_at_step);
    } else if (name == "--nan-worker") {
      is_ok = absl::SimpleAtoi(value, &flags.nan_worker);
    } else if (name == "--step-milliseconds") {
      is_ok = absl::SimpleAtoi(value, &flags.step_milliseconds);
    } else if (name == "--slow-worker") {
      is_ok = absl::SimpleAtoi(value, &flags.slow_worker);
    } else if (name == "--slow-factor") {
      is_ok = absl::SimpleAtoi(value, &flags.slow_factor);
    } else if (name == "--optimizer") {
      flags.optimizer = value;
    } else if (name == "--codec") {
      const absl::StatusOr<Codec> codec = ParseCodec(value);
      is_ok = codec.ok();
      flags.codec = codec.value_or(Codec::kNone);
    } else if (name == "--dtype") {
      const std::optional<DType> dtype = ParseDType(value);
      is_ok = dtype.has_value();
      flags.dtype = dtype.value_or(DType::kFloat32);
    } else if (name == "--weights") {
      flags.weights = value;
    } else if (name == "--stall-until") {
      flags.stall_until = value;
    } else if (name == "--until") {
      flags.until = value;
    } else {
      is_ok = false;
    }
    if (!is_ok)
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": not understood"));
  }
  return flags;
}

TensorSpec SpecOf(const Flags& flags, uint64_t index) {
  TensorSpec spec{.name = absl::StrCat("t", index), .dims = {static_cast<int64_t>(flags.values)}};
  spec.codec = flags.codec;
  spec.dtype = flags.dtype;
  if (flags.optimizer == "sum") {
    spec.reduction = Reduction::kSum;
    spec.optimizer.kind = OptimizerKind::kSum;
    spec.optimizer.learning_rate = 0;
  } else if (flags.optimizer == "add") {
    spec.reduction = Reduction::kSum;
    spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  } else {
    spec.optimizer.kind = flags.optimizer == "adam" ? OptimizerKind::kAdam : OptimizerKind::kSgd;
    spec.optimizer.learning_rate = flags.noise_samples > 0 ? 1e-9 : 0.01;
  }
  return spec;
}

bool Exists(const std::string& path) {
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

// Compute time, or less once the file is there: the thread waits without the processor.
void Compute(Duration duration, const std::string& until) {
  Mutex mu;
  CondVar never;
  const Deadline end = Deadline::After(duration);
  MutexLock lock(mu);
  while (!end.has_passed() && !Exists(until))
    never.WaitUntil(mu, Deadline::After(std::min(end.remaining(), kLookInterval)));
}

void ComputeStep(const Flags& flags, const Job& job) {
  const bool is_slow = job.worker().value() == flags.slow_worker;
  const int64_t factor = is_slow ? flags.slow_factor : 1;
  Compute(std::chrono::milliseconds(flags.step_milliseconds * factor), flags.until);
}

absl::Status CheckSum(const Job& job, std::span<const float> value, uint64_t step) {
  const double workers = job.workers();
  const double expected = workers * (workers + 1) / 2;
  for (const float number : value) {
    if (number == expected) continue;
    return absl::DataLossError(
        absl::StrCat("step ", step, ": sum is ", number, ", expected ", expected));
  }
  return absl::OkStatus();
}

// Between -1 and 1, by a linear congruential generator.
void FillMixed(uint32_t seed, std::span<float> gradient) {
  uint32_t state = seed;
  for (float& value : gradient) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
  }
}

void FillNoise(uint64_t samples, uint64_t seed, std::span<float> gradient) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.02, 1 / std::sqrt(static_cast<double>(samples)));
  for (float& value : gradient) value = static_cast<float>(normal(random));
}

void FillGradient(const Flags& flags,
                  uint32_t worker,
                  uint64_t step,
                  uint64_t tensor,
                  std::span<float> gradient) {
  if (flags.noise_samples > 0) {
    FillNoise(flags.noise_samples, (step * flags.tensors + tensor) * 1000 + worker, gradient);
  } else if (flags.weights.empty()) {
    std::fill(gradient.begin(), gradient.end(), static_cast<float>(worker + 1));
  } else {
    FillMixed(static_cast<uint32_t>((step * flags.tensors + tensor) * 1000 + worker), gradient);
    if (flags.optimizer == "add")
      for (float& value : gradient) value = std::round(value * 8);
  }
  const bool is_bad = static_cast<int64_t>(step) == flags.nan_at_step && worker == flags.nan_worker;
  if (is_bad) gradient.back() = std::numeric_limits<float>::quiet_NaN();
  // Finite, but not in float16.
  if (static_cast<int64_t>(step) == flags.large_at_step) gradient.back() = 1e6F;
}

absl::Status WriteWeights(const std::string& path, const std::vector<std::vector<float>>& values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const std::vector<float>& value : values) {
    const std::string_view bytes(reinterpret_cast<const char*>(value.data()),
                                 value.size() * sizeof(float));
    file << bytes;
  }
  file.flush();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": the weights cannot be written"));
}

// The values as the program has them in one piece, wherever they have come to.
absl::Status Gather(const PushHandle& handle, std::span<float> value) {
  size_t at = 0;
  for (const std::span<const float> piece : handle.Pieces()) {
    if (piece.size() > value.size() - at) return absl::DataLossError("more values than expected");
    if (piece.data() != &value[at]) std::copy(piece.begin(), piece.end(), &value[at]);
    at += piece.size();
  }
  if (at == value.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(at, " values, expected ", value.size()));
}

// How long the longest step took, from the end of the one before on.
class StepWatch {
 public:
  void Ended(uint64_t step) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now - ended_at_ > longest_) {
      longest_ = now - ended_at_;
      longest_step_ = step;
    }
    ended_at_ = now;
  }
  void Print() const {
    std::printf("longest step %.4f s, step %lu\n", ToSeconds(longest_), longest_step_);
    std::fflush(stdout);
  }

 private:
  Duration longest_{0};
  uint64_t longest_step_ = 0;
  SteadyTime ended_at_ = std::chrono::steady_clock::now();
};

// A program that is deaf to it is told by the library.
bool MayGoOn(const Job& job, const Flags& flags) {
  return flags.is_deaf || !job.is_released();
}

// Outlives the job: when one push fails, others are still under way.
struct Memory {
  std::vector<std::vector<float>> values;
  std::vector<float> gradients;
  // Of another type than float32: what is pushed and received.
  std::vector<std::vector<std::byte>> narrow_values;
  std::vector<std::vector<std::byte>> narrow_gradients;
  std::vector<std::span<std::byte>> pushed;
};

// Memory of tensors of another type than float32.
absl::Status TakeNarrowMemory(Job& job, Memory& memory, const Flags& flags) {
  const size_t bytes = flags.values * DTypeBytes(flags.dtype);
  memory.narrow_values.assign(flags.tensors, std::vector<std::byte>(bytes));
  memory.narrow_gradients = memory.narrow_values;
  for (std::vector<std::byte>& own : memory.narrow_gradients) memory.pushed.emplace_back(own);
  if (flags.is_registered == 0) return absl::OkStatus();
  for (std::span<std::byte>& pushed : memory.pushed) {
    PUSHPULL_ASSIGN_OR_RETURN(const std::span<float> shared, job.AllocateBuffer(flags.values));
    pushed = std::as_writable_bytes(shared).first(bytes);
  }
  return absl::OkStatus();
}

TensorValues OutOf(Memory& memory, const Flags& flags, uint64_t tensor) {
  if (flags.dtype == DType::kFloat32) return memory.values[tensor];
  return {flags.dtype, memory.narrow_values[tensor]};
}

// The gradient as it is pushed.
ConstTensorValues PushedOf(Memory& memory,
                           const Flags& flags,
                           uint64_t tensor,
                           std::span<const float> gradient) {
  if (flags.dtype == DType::kFloat32) return gradient;
  Narrow(flags.dtype, gradient, memory.pushed[tensor]);
  return {flags.dtype, memory.pushed[tensor]};
}

// Registers the tensors; where the program has its gradients.
absl::StatusOr<std::span<float>> RegisterTensors(Job& job, Memory& memory, const Flags& flags) {
  memory.values.assign(flags.tensors, std::vector<float>(flags.values, 0));
  if (flags.dtype != DType::kFloat32)
    PUSHPULL_RETURN_IF_ERROR(TakeNarrowMemory(job, memory, flags));
  memory.gradients.resize(flags.is_registered != 0 ? 0 : flags.tensors * flags.values);
  std::span<float> gradients(memory.gradients);
  if (flags.is_registered != 0) {
    PUSHPULL_ASSIGN_OR_RETURN(gradients, job.AllocateBuffer(flags.tensors * flags.values));
  }
  std::vector<TensorRegistration> registrations;
  for (uint64_t i = 0; i < flags.tensors; ++i) {
    registrations.push_back({.spec = SpecOf(flags, i),
                             .value = OutOf(memory, flags, i),
                             .keeps_value = flags.is_in_place == 0});
  }
  PUSHPULL_RETURN_IF_ERROR(job.Register(registrations, Deadline::After(kStepTimeout)));
  return gradients;
}

absl::Status PushPullAll(
    Job& job, Memory& memory, const Flags& flags, std::span<float> gradients, uint64_t step) {
  const auto samples = static_cast<double>(std::max<uint64_t>(flags.noise_samples, 1));
  std::vector<PushHandle> handles;
  for (uint64_t i = flags.tensors; i-- > 0;) {
    const std::span<float> gradient = gradients.subspan(i * flags.values, flags.values);
    FillGradient(flags, job.worker().value(), step, i, gradient);
    PUSHPULL_ASSIGN_OR_RETURN(
        PushHandle handle,
        job.PushPull(absl::StrCat("t", i),
                     PushedOf(memory, flags, i, gradient),
                     OutOf(memory, flags, i),
                     {.samples = samples, .in_place = flags.is_in_place != 0}));
    handles.push_back(std::move(handle));
  }
  for (PushHandle& handle : handles)
    PUSHPULL_RETURN_IF_ERROR(handle.Wait(Deadline::After(kStepTimeout)));
  for (uint64_t i = 0; i < memory.narrow_values.size(); ++i)
    Widen(flags.dtype, memory.narrow_values[i], memory.values[i]);
  for (uint64_t i = 0; flags.is_in_place != 0 && i < flags.tensors; ++i)
    PUSHPULL_RETURN_IF_ERROR(Gather(handles[flags.tensors - 1 - i], memory.values[i]));
  return absl::OkStatus();
}

absl::Status Train(Job& job, Memory& memory, const Flags& flags, bool checks_sums) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<float> gradients, RegisterTensors(job, memory, flags));
  const bool adds = flags.optimizer == "add";
  StepWatch watch;
  for (uint64_t step = job.start_step().value(); step < flags.steps && MayGoOn(job, flags);
       step = adds ? step + 1 : job.next_step().value()) {
    ComputeStep(flags, job);
    if (step == flags.stall_at_step && job.worker().value() == flags.stall_worker)
      Compute(kLongestStall, flags.stall_until);
    PUSHPULL_RETURN_IF_ERROR(PushPullAll(job, memory, flags, gradients, step));
    if (checks_sums) {
      for (const std::vector<float>& value : memory.values)
        PUSHPULL_RETURN_IF_ERROR(CheckSum(job, value, step));
    }
    watch.Ended(step);
    // Another one for each worker, so that the mean shows who is missing.
    job.ReportLoss(Step{step}, (1.0 + job.worker().value()) / static_cast<double>(step + 1), 1);
  }
  watch.Print();
  const bool writes_weights = !flags.weights.empty() && (adds || job.worker().value() == 0);
  if (writes_weights && MayGoOn(job, flags))
    PUSHPULL_RETURN_IF_ERROR(WriteWeights(flags.weights, memory.values));
  PUSHPULL_RETURN_IF_ERROR(job.ReportResult("loss", memory.values.front().front()));
  return job.Leave(Deadline::After(kStepTimeout));
}

absl::Status CountSamples(Job& job, Memory& memory, const Flags& flags) {
  std::vector<float>& counts = memory.values.emplace_back(flags.samples, 0.0F);
  std::vector<float>& gradient = memory.gradients;
  gradient.assign(flags.samples, 0);
  TensorSpec spec{.name = "counts", .dims = {static_cast<int64_t>(flags.samples)}};
  spec.reduction = Reduction::kSum;
  spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  PUSHPULL_RETURN_IF_ERROR(
      job.UseSamples({.num_samples = flags.samples, .epochs = flags.epochs, .batch = flags.batch}));
  const TensorRegistration registration{.spec = spec, .value = counts};
  PUSHPULL_RETURN_IF_ERROR(job.Register({&registration, 1}, Deadline::After(kStepTimeout)));
  PUSHPULL_ASSIGN_OR_RETURN(StepSamples mine, job.Samples());
  StepWatch watch;
  while (!mine.is_over) {
    ComputeStep(flags, job);
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (const SampleRange& range : mine.ranges) {
      for (uint64_t i = 0; i < range.count; ++i) gradient[range.first + i] = -1;
    }
    const Deadline deadline = Deadline::After(kStepTimeout);
    PUSHPULL_ASSIGN_OR_RETURN(
        PushHandle pushed,
        job.PushPull("counts", gradient, counts, {.samples = static_cast<double>(mine.count)}));
    PUSHPULL_ASSIGN_OR_RETURN(PushHandle committed, job.CommitSamples());
    PUSHPULL_RETURN_IF_ERROR(pushed.Wait(deadline));
    PUSHPULL_RETURN_IF_ERROR(committed.Wait(deadline));
    watch.Ended(job.next_step().value() - 1);
    PUSHPULL_ASSIGN_OR_RETURN(mine, job.Samples());
  }
  watch.Print();
  const bool is_done = mine.epoch >= flags.epochs;
  if (job.worker() != WorkerId{0} || !is_done) return job.Leave(Deadline::After(kStepTimeout));
  PUSHPULL_RETURN_IF_ERROR(
      job.ReportResult("least", *std::min_element(counts.begin(), counts.end())));
  PUSHPULL_RETURN_IF_ERROR(
      job.ReportResult("most", *std::max_element(counts.begin(), counts.end())));
  PUSHPULL_RETURN_IF_ERROR(
      job.ReportResult("total", std::accumulate(counts.begin(), counts.end(), 0.0)));
  return job.Leave(Deadline::After(kStepTimeout));
}

// What the program ends with.
absl::StatusOr<int> Main(const Flags& flags) {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    environment[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  PUSHPULL_ASSIGN_OR_RETURN(JobOptions options, JobOptions::FromEnvironment(environment));
  options.bypasses_codecs = flags.bypasses_codec != 0;
  Memory memory;
  PUSHPULL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Job> job,
      Job::Join(options, Deadline::After(std::chrono::seconds(flags.join_seconds))));
  const bool checks_sums = flags.optimizer == "sum" && !environment.contains("PROBE_IGNORES_SUMS");
  const absl::Status status = flags.samples > 0 ? CountSamples(*job, memory, flags)
                                                : Train(*job, memory, flags, checks_sums);
  if (!status.ok() && job->exit_code() == 0) return status;
  if (!status.ok())
    std::fprintf(stderr, "probe_worker: %s\n", std::string(status.message()).c_str());
  return job->exit_code();
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const absl::StatusOr<pushpull::Flags> flags = pushpull::Parse(argc, argv);
  const absl::StatusOr<int> end = flags.ok() ? pushpull::Main(*flags) : flags.status();
  if (end.ok()) return *end;
  std::fprintf(stderr, "probe_worker: %s\n", std::string(end.status().message()).c_str());
  return absl::IsInvalidArgument(end.status()) && !flags.ok() ? 2 : 1;
}
