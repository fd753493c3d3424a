// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/gradient_exchange.h"
#include "runtime/train/learning_rate.h"
#include "runtime/train/sample_order.h"

namespace pushpull {
namespace {

namespace functional = torch::nn::functional;

// Evaluation has no gradients to keep, so its batches may be large: 250 divides 10,000.
constexpr uint32_t kEvaluationBatch = 250;

// Leaving is one message to the coordinator, which in mode AllReduce saves the last step first.
constexpr std::chrono::seconds kLeaveTimeout{60};

// Mean and standard deviation of all pixels of Fashion-MNIST's training images, of 255.
constexpr float kPixelMean = 72.9F;
constexpr float kPixelDeviation = 90.0F;

constexpr size_t kImagePixels = size_t{kImageHeight} * kImageWidth;

struct ImageBatch {
  torch::Tensor images;  // [batch, 1, kImageHeight, kImageWidth] float32, about mean 0, variance 1
  torch::Tensor labels;  // [batch] int64
};

// Copies the images numbered `indices`, each below images.num_images(), in that order.
ImageBatch MakeImageBatch(const ImageSet& images, std::span<const uint32_t> indices) {
  const auto batch = static_cast<int64_t>(indices.size());
  ImageBatch result{.images = torch::empty({batch, 1, kImageHeight, kImageWidth}),
                    .labels = torch::empty({batch}, torch::kInt64)};
  auto* pixel = result.images.data_ptr<float>();
  auto* label = result.labels.data_ptr<int64_t>();
  for (const uint32_t index : indices) {
    PUSHPULL_CHECK(index < images.num_images());
    const uint8_t* from = images.pixels.data() + index * kImagePixels;
    for (size_t i = 0; i < kImagePixels; ++i) {
      *pixel++ = (static_cast<float>(from[i]) - kPixelMean) / kPixelDeviation;
    }
    *label++ = images.labels[index];
  }
  return result;
}

struct Evaluation {
  double loss = 0;      // mean cross-entropy
  double accuracy = 0;  // share of images whose label has the highest score
};

Evaluation Evaluate(torch::nn::Sequential& model, const ImageSet& images) {
  const torch::NoGradGuard no_gradients;
  double loss = 0;
  int64_t correct = 0;
  for (uint32_t first = 0; first < images.num_images(); first += kEvaluationBatch) {
    std::vector<uint32_t> indices(std::min(kEvaluationBatch, images.num_images() - first));
    std::iota(indices.begin(), indices.end(), first);
    const ImageBatch batch = MakeImageBatch(images, indices);
    const torch::Tensor scores = model->forward(batch.images);
    loss += functional::cross_entropy(scores, batch.labels).item<double>() *
            static_cast<double>(indices.size());
    correct += scores.argmax(1).eq(batch.labels).sum().item<int64_t>();
  }
  return {.loss = loss / images.num_images(),
          .accuracy = static_cast<double>(correct) / images.num_images()};
}

// The mean over the samples added since it was last taken.
class LossMean {
 public:
  void Add(double loss, uint64_t samples) {
    sum_ += loss * static_cast<double>(samples);
    samples_ += samples;
  }
  double Take() {
    const double mean = samples_ == 0 ? 0 : sum_ / static_cast<double>(samples_);
    *this = LossMean();
    return mean;
  }

 private:
  double sum_ = 0;
  uint64_t samples_ = 0;
};

class Trainer {
 public:
  Trainer(std::unique_ptr<Job> job,
          const ImageSet& training,
          const ImageSet& test,
          const TrainingSettings& settings,
          std::FILE* lines)
      : settings_(settings),
        order_spec_{.num_samples = training.num_images(), .seed = settings.seed},
        job_(std::move(job)),
        training_(training),
        test_(test),
        lines_(lines),
        model_(MakeModel(settings.model, settings.seed)),
        exchange_(*job_, *model_) {}
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  // After a failed step the job may still read gradients and write parameters.
  ~Trainer() { job_.reset(); }

  // An error in a process that has to end (SIGTERM) is part of its end, not a failure.
  absl::StatusOr<int> RunToExitCode() {
    const absl::Status status = Run();
    if (!status.ok() && job_->exit_code() == 0) return status;
    return job_->exit_code();
  }

 private:
  absl::Status Run() {
    PUSHPULL_RETURN_IF_ERROR(job_->UseSamples({.num_samples = training_.num_images(),
                                               .epochs = settings_.epochs,
                                               .batch = settings_.batch}));
    PUSHPULL_RETURN_IF_ERROR(exchange_.Register(
        settings_.optimizer, settings_.codec, Deadline::After(settings_.start_timeout)));
    PUSHPULL_ASSIGN_OR_RETURN(StepSamples samples, job_->Samples());
    while (!samples.is_over && samples.step.value() < LastStep()) {
      PUSHPULL_RETURN_IF_ERROR(samples.has_step ? RunStep(samples) : AwaitSamples());
      const uint64_t epoch = samples.epoch;
      PUSHPULL_ASSIGN_OR_RETURN(samples, job_->Samples());
      if (samples.epoch != epoch) EndEpoch(samples.epoch);
    }
    const bool is_done = samples.epoch >= settings_.epochs || samples.step.value() >= LastStep();
    if (is_evaluator() && is_done) PUSHPULL_RETURN_IF_ERROR(ReportFinal(samples));
    return job_->Leave(Deadline::After(kLeaveTimeout));
  }

  bool is_evaluator() const { return job_->worker() == WorkerId{0}; }

  // The first step that is not taken.
  uint64_t LastStep() const {
    return settings_.steps_max.value_or(std::numeric_limits<uint64_t>::max());
  }

  // Progress is measured in the data, whatever the number of workers on the way: each sample that
  // has counted is one step of the schedule. A step with fewer samples, at the end of an epoch, has
  // a proportionally lower rate.
  double LearningRate(const StepSamples& samples) const {
    const uint64_t total = settings_.epochs * training_.num_images();
    const uint64_t end =
        settings_.steps_max ? std::min(total, *settings_.steps_max * samples.batch) : total;
    const LearningRateSettings rate{
        .base_learning_rate = settings_.optimizer.learning_rate,
        .base_batch = settings_.base_batch,
        .warmup_steps = static_cast<uint64_t>(
            std::llround(settings_.warmup_epochs * static_cast<double>(training_.num_images()))),
        .anneal_steps = settings_.anneals ? end : 0};
    const Step progress{samples.epoch * training_.num_images() + samples.position};
    // A rate of 0 would mean the registered one.
    return std::max(LearningRateAt(rate, samples.total, progress),
                    std::numeric_limits<double>::min());
  }

  absl::Status RunStep(const StepSamples& samples) {
    exchange_.BeginStep(
        {.samples = static_cast<double>(samples.count), .learning_rate = LearningRate(samples)});
    if (settings_.poisoned_step == samples.step) exchange_.PoisonNextGradient();
    double loss = 0;
    if (samples.count == 0) {
      exchange_.PushZeros();
    } else {
      const ImageBatch batch = MakeImageBatch(training_, IndicesOf(samples));
      torch::Tensor mean = functional::cross_entropy(model_->forward(batch.images), batch.labels);
      mean.backward();
      loss = mean.item<double>();
    }
    const Deadline deadline = Deadline::After(settings_.step_timeout);
    PUSHPULL_ASSIGN_OR_RETURN(PushHandle committed, job_->CommitSamples());
    PUSHPULL_RETURN_IF_ERROR(exchange_.FinishStep(deadline));
    PUSHPULL_RETURN_IF_ERROR(committed.Wait(deadline));
    job_->ReportLoss(samples.step, loss, samples.count);
    epoch_loss_.Add(loss, samples.count);
    return absl::OkStatus();
  }

  absl::Status AwaitSamples() {
    PUSHPULL_ASSIGN_OR_RETURN(PushHandle committed, job_->CommitSamples());
    return committed.Wait(Deadline::After(settings_.step_timeout));
  }

  std::vector<uint32_t> IndicesOf(const StepSamples& samples) {
    if (order_.empty() || order_epoch_ != samples.epoch) {
      order_ = OrderOfEpoch(order_spec_, samples.epoch);
      order_epoch_ = samples.epoch;
    }
    std::vector<uint32_t> indices;
    for (const SampleRange& range : samples.ranges) {
      const auto part = std::span(order_).subspan(range.first, range.count);
      indices.insert(indices.end(), part.begin(), part.end());
    }
    return indices;
  }

  // `epoch` is 1-based.
  void EndEpoch(uint64_t epoch) {
    const double training_loss = epoch_loss_.Take();
    const bool is_due = settings_.evaluate_every != 0 && epoch % settings_.evaluate_every == 0;
    if (!is_evaluator() || (!is_due && epoch != settings_.epochs)) return;
    evaluation_ = Evaluate(model_, test_);
    evaluated_epoch_ = epoch;
    std::fprintf(lines_,
                 "epoch %llu/%llu loss %.4f accuracy %.4f\n",
                 static_cast<unsigned long long>(epoch),
                 static_cast<unsigned long long>(settings_.epochs),
                 training_loss,
                 evaluation_.accuracy);
    std::fflush(lines_);
  }

  absl::Status ReportFinal(const StepSamples& samples) {
    if (evaluated_epoch_ != samples.epoch || samples.position != 0)
      evaluation_ = Evaluate(model_, test_);
    PUSHPULL_RETURN_IF_ERROR(job_->ReportResult("loss", evaluation_.loss));
    PUSHPULL_RETURN_IF_ERROR(job_->ReportResult("accuracy", evaluation_.accuracy));
    std::fprintf(lines_, "test accuracy %.4f\n", evaluation_.accuracy);
    std::fflush(lines_);
    return absl::OkStatus();
  }

  const TrainingSettings settings_;
  const OrderSpec order_spec_;
  std::unique_ptr<Job> job_;
  const ImageSet& training_;
  const ImageSet& test_;
  std::FILE* const lines_;
  torch::nn::Sequential model_;
  GradientExchange exchange_;
  std::vector<uint32_t> order_;
  uint64_t order_epoch_ = 0;
  LossMean epoch_loss_;
  Evaluation evaluation_;         // the latest one
  uint64_t evaluated_epoch_ = 0;  // 1-based; 0: none yet
};

}  // namespace

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  at::set_num_interop_threads(1);
  // LibTorch sets only OpenMP's threads. OpenBLAS may have its own, one per core, and whether
  // OpenBLAS is used at all depends on the system's libblas.so.3.
  using SetThreads = void (*)(int);
  auto* const set_blas_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

absl::Status Validate(const TrainingSettings& settings) {
  if (settings.epochs == 0) return absl::InvalidArgumentError("epochs: must be above 0, is 0");
  if (settings.batch == 0) return absl::InvalidArgumentError("batch: must be above 0, is 0");
  if (!(settings.warmup_epochs >= 0 && settings.warmup_epochs <= 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("warmup-epochs: must be between 0 and 1000000, is ", settings.warmup_epochs));
  }
  PUSHPULL_RETURN_IF_ERROR(Validate(LearningRateSettings{
      .base_learning_rate = settings.optimizer.learning_rate, .base_batch = settings.base_batch}));
  return Validate(settings.optimizer);
}

absl::StatusOr<int> Train(std::unique_ptr<Job> job,
                          const ImageSet& training,
                          const ImageSet& test,
                          const TrainingSettings& settings,
                          std::FILE* lines) {
  return Trainer(std::move(job), training, test, settings, lines).RunToExitCode();
}

}  // namespace pushpull
