// SPDX-License-Identifier: Apache-2.0
//
// A job of one process for the trainer's tests: plain gradient descent without what is not
// finite, applied before PushPull returns, and a record of all that was asked of it.
#pragma once

#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pushpull/job.h"

#include "runtime/consistency/sample_queue.h"

namespace pushpull {

class LocalJob final : public Job {
 public:
  struct Push {
    std::string tensor;
    std::vector<float> gradient;
    PushOptions options;
  };

  // Lives on when the trainer has ended the job.
  struct Record {
    std::vector<TensorSpec> specs;
    std::vector<Push> pushes;
    std::vector<double> losses;
    std::vector<Step> steps;
    std::map<std::string, double> results;
    bool has_left = false;
  };

  struct Options {
    WorkerId worker;
    uint32_t workers = 1;
    Step start_step;
    absl::Status push_result;  // of the handles
    int exit_code = 0;
  };

  LocalJob(const Options& options, Record& record) : options_(options), record_(record) {}

  absl::Status Register(std::span<const TensorRegistration> tensors, Deadline deadline) override;
  absl::StatusOr<std::span<float>> AllocateBuffer(size_t num_values) override;
  absl::StatusOr<PushHandle> PushPull(absl::string_view tensor,
                                      ConstTensorValues gradient,
                                      TensorValues out,
                                      const PushOptions& options) override;
  absl::Status EndStep() override { return absl::OkStatus(); }
  absl::StatusOr<PushHandle> Pull(absl::string_view tensor,
                                  TensorValues out,
                                  Step min_version) override;
  absl::StatusOr<PushHandle> PullOptimizerState(absl::string_view tensor,
                                                std::span<float> out,
                                                Step min_version) override;
  absl::StatusOr<PushHandle> PushRows(absl::string_view tensor,
                                      std::span<const uint64_t> keys,
                                      std::span<const float> gradient,
                                      const PushOptions& options) override;
  absl::StatusOr<PushHandle> PullRows(absl::string_view tensor,
                                      std::span<const uint64_t> keys,
                                      std::span<float> out,
                                      Step min_version) override;
  absl::Status UseSamples(const SampleSource& source) override;
  absl::StatusOr<StepSamples> Samples(uint64_t ahead) const override;
  absl::StatusOr<PushHandle> CommitSamples(bool are_done) override;
  ProgramState& state() override { std::abort(); }       // the trainer has none
  Collectives& collectives() override { std::abort(); }  // the trainer uses none
  Tracing& tracing() override { std::abort(); }          // likewise
  bool is_released() const override { return false; }
  void TellToEnd() override {}
  int exit_code() const override { return options_.exit_code; }
  Step start_step() const override { return options_.start_step; }
  Step next_step() const override { return queue_ ? queue_->step() : options_.start_step; }
  WorkerId worker() const override { return options_.worker; }
  uint32_t workers() const override { return options_.workers; }
  void ReportLoss(Step step, double loss, uint64_t samples) override;
  absl::Status ReportResult(absl::string_view name, double value) override;
  absl::Status Leave(Deadline deadline) override;

 private:
  std::vector<WorkerId> Everybody() const;
  void Advance();

  const Options options_;
  Record& record_;
  std::optional<SampleQueue> queue_;
  uint64_t epochs_ = 0;
  std::list<std::vector<float>> buffers_;
};

}  // namespace pushpull
