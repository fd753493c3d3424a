// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/sync_worker.h"

#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pushpull/job.h"

#include "runtime/base/status_macros.h"
#include "runtime/bench/control_socket.h"
#include "runtime/bench/raw_link.h"
#include "runtime/bench/step_values.h"
#include "runtime/bench/tensor_mix.h"

namespace pushpull {
namespace {

constexpr Duration kWorkerStartTimeout = std::chrono::seconds(120);
constexpr Duration kWorkerStepTimeout = std::chrono::seconds(120);
// Long, because the benchmark measures its references meanwhile and other workers may start slowly.
constexpr Duration kOrderTimeout = std::chrono::seconds(300);

struct Tensor {
  std::string name;
  uint64_t place;  // position of its first value among all
  std::span<float> gradient;
  std::span<float> sum;
};

class SyncWorker {
 public:
  explicit SyncWorker(Job& job) : job_(job), values_(job.worker().value(), job.workers()) {}

  absl::Status MakeTensors(const std::vector<uint64_t>& sizes, bool is_registered) {
    uint64_t place = 0;
    for (const uint64_t size : sizes) place += size;
    sums_.resize(place);
    is_in_place_ = is_registered;
    std::span<float> gradients;
    if (is_registered) {
      PUSHPULL_ASSIGN_OR_RETURN(gradients, job_.AllocateBuffer(place));
    } else {
      gradients_.resize(place);
      gradients = gradients_;
    }
    place = 0;
    for (const uint64_t size : sizes) {
      tensors_.push_back({.name = absl::StrCat("t", tensors_.size()),
                          .place = place,
                          .gradient = gradients.subspan(place, size),
                          .sum = std::span(sums_).subspan(place, size)});
      place += size;
    }
    return absl::OkStatus();
  }

  absl::Status Register() {
    std::vector<TensorRegistration> registrations;
    for (const Tensor& tensor : tensors_) {
      TensorSpec spec{.name = tensor.name,
                      .dims = {static_cast<int64_t>(tensor.sum.size())},
                      .reduction = Reduction::kSum,
                      .optimizer = {.kind = OptimizerKind::kSum}};
      // As in a program with its own optimizer: a sum is consumed, not kept.
      registrations.push_back({.spec = std::move(spec), .value = tensor.sum, .keeps_value = false});
    }
    return job_.Register(registrations, Deadline::After(kWorkerStartTimeout));
  }

  void Fill() {
    for (const Tensor& tensor : tensors_) values_.Fill(step_, tensor.place, tensor.gradient);
  }

  absl::StatusOr<StepTimes> Step() {
    handles_.clear();
    const int64_t cpu = NanosecondsOf(CLOCK_PROCESS_CPUTIME_ID);
    StepTimes times{.begin = NanosecondsOf(CLOCK_MONOTONIC)};
    for (const Tensor& tensor : tensors_) {
      PUSHPULL_ASSIGN_OR_RETURN(
          PushHandle handle,
          job_.PushPull(tensor.name, tensor.gradient, tensor.sum, {.in_place = is_in_place_}));
      handles_.push_back(std::move(handle));
    }
    const Deadline deadline = Deadline::After(kWorkerStepTimeout);
    for (PushHandle& handle : handles_) PUSHPULL_RETURN_IF_ERROR(handle.Wait(deadline));
    times.end = NanosecondsOf(CLOCK_MONOTONIC);
    times.cpu = NanosecondsOf(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return times;
  }

  // Checks the sums of the finished step, then fills in the next gradient.
  void CheckAndFill() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& tensor = tensors_[i];
      const absl::Status checked = Check(tensor, handles_[i]);
      if (checked.ok() || !is_right_) continue;
      is_right_ = false;
      std::fprintf(stderr, "%s: %s\n", tensor.name.c_str(), std::string(checked.message()).c_str());
    }
    ++step_;
    Fill();
  }

  bool is_right() const { return is_right_; }

 private:
  absl::Status Check(const Tensor& tensor, const PushHandle& handle) const {
    if (!is_in_place_) return values_.Check(step_, tensor.place, tensor.sum);
    uint64_t place = tensor.place;
    for (const std::span<const float> piece : handle.Pieces()) {
      PUSHPULL_RETURN_IF_ERROR(values_.Check(step_, place, piece));
      place += piece.size();
    }
    if (place == tensor.place + tensor.sum.size()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(place - tensor.place, " values have come back"));
  }

  Job& job_;
  const StepValues values_;
  bool is_in_place_ = false;
  std::vector<float> gradients_;  // used if they are not registered
  std::vector<float> sums_;
  std::vector<Tensor> tensors_;
  std::vector<PushHandle> handles_;
  uint64_t step_ = 0;
  bool is_right_ = true;
};

absl::Status DoSteps(SyncWorker& worker, uint32_t steps, ControlSocket& control) {
  std::vector<StepTimes> times;
  for (uint32_t i = 0; i < steps; ++i) {
    if (i > 0) worker.CheckAndFill();
    PUSHPULL_ASSIGN_OR_RETURN(const StepTimes one, worker.Step());
    times.push_back(one);
  }
  return control.Send(std::span<const StepTimes>(times), Deadline::After(kOrderTimeout));
}

absl::Status FollowOrders(SyncWorker& worker, ControlSocket& control) {
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(const Order order,
                              control.Receive<Order>(Deadline::After(kOrderTimeout)));
    if (order.kind == OrderKind::kLeave) return absl::OkStatus();
    if (order.kind == OrderKind::kSteps) {
      PUSHPULL_RETURN_IF_ERROR(DoSteps(worker, order.steps, control));
    } else {
      worker.CheckAndFill();
      PUSHPULL_RETURN_IF_ERROR(
          control.Send(Verdict{worker.is_right() ? 1U : 0U}, Deadline::After(kOrderTimeout)));
    }
  }
}

}  // namespace

absl::Status RunSyncWorker(const SyncWorkerOptions& options,
                           const std::map<std::string, std::string>& environment) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<uint64_t> sizes,
                            MakeTensors(options.tensors, options.bytes));
  PUSHPULL_ASSIGN_OR_RETURN(ControlSocket control, ControlSocket::Connect(options.control));
  PUSHPULL_ASSIGN_OR_RETURN(const JobOptions job_options, JobOptions::FromEnvironment(environment));
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<Job> job,
                            Job::Join(job_options, Deadline::After(kWorkerStartTimeout)));
  SyncWorker worker(*job);
  PUSHPULL_RETURN_IF_ERROR(worker.MakeTensors(sizes, options.is_registered));
  PUSHPULL_RETURN_IF_ERROR(worker.Register());
  worker.Fill();
  PUSHPULL_RETURN_IF_ERROR(
      control.Send(WorkerReady{job_options.worker.value()}, Deadline::After(kOrderTimeout)));
  PUSHPULL_RETURN_IF_ERROR(FollowOrders(worker, control));
  return job->Leave(Deadline::After(kWorkerStartTimeout));
}

}  // namespace pushpull
