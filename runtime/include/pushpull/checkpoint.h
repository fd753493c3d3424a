// SPDX-License-Identifier: Apache-2.0
//
// A job's checkpoint, read without the job:
//
//   auto checkpoint = pushpull::Checkpoint::Open("/models/default/mnist");  // the newest there
//   std::vector<float> w(800);
//   absl::Status read = (*checkpoint)->Read("fc1.weight", 0, w);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/ids.h"
#include "pushpull/samples.h"
#include "pushpull/tensor_spec.h"
#include "pushpull/tensor_values.h"

namespace pushpull {

struct CheckpointInfo {
  std::string folder;         // the checkpoint's own
  std::string job_namespace;  // empty: unknown, written by an early version
  std::string job;
  std::string mode;        // as spec.sync.mode spells it
  Step step;               // the job's next one
  int64_t written_at = 0;  // seconds since 1970
};

// The position in the data set that the job's workers share.
struct DataPosition {
  SampleSource source;    // `epochs` are those of the program that began the job
  uint64_t epoch = 0;     // 0-based
  uint64_t position = 0;  // samples of the epoch that have counted
};

// What a tensor of a checkpoint is.
enum class TensorRole : uint8_t {
  kValue,           // registered by the program
  kOptimizerState,  // of an optimizer that pushpull.torch runs on the workers
  kInternal,        // what the Python package needs in steps and to begin again
};

struct CheckpointTensor {
  TensorSpec spec;
  TensorRole role = TensorRole::kValue;
  // kOptimizerState: the tensor that it belongs to, and its name there ("exp_avg").
  std::string owner = {};
  std::string key = {};
};

// The rows of a row-sparse tensor that steps have pushed, by key in ascending order.
struct CheckpointRows {
  std::vector<uint64_t> keys;
  std::vector<float> values;  // [keys, dim]
  std::vector<float> states;  // [keys, StateFloatsPerValue, dim]
  uint64_t updates = 0;       // the steps that the optimizer has made
};

// Thread-safe. Every call blocks on the disk and checks what it reads.
//
// Errors of all: kDataLoss, a file is damaged or missing, the text names it; kUnimplemented,
// written by a newer version; kUnavailable and others, the disk. kNotFound: no such tensor.
class Checkpoint {
 public:
  // `path`: the folder of a checkpoint, or one that has checkpoints of one job, in itself or in
  // NAMESPACE/JOB: the newest complete one.
  //
  // kNotFound         there is no checkpoint, or none that was completed.
  // kInvalidArgument  there are checkpoints of several jobs; the text names them. Give the folder
  //                   of one.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual const CheckpointInfo& info() const = 0;
  // In the order in which the job has registered them.
  virtual const std::vector<CheckpointTensor>& tensors() const = 0;
  // None: the job does not share a data set. In modes Async and Bounded: as of when its chunk was
  // saved.
  virtual const std::optional<DataPosition>& position() const = 0;

  // Reads elements from `first` on, row-major, as many as `out` has. `out` is of the tensor's
  // dtype, or of float32: the values of which half-precision ones are the rounded.
  //
  // kInvalidArgument: beyond the end, another dtype, or a row-sparse tensor.
  virtual absl::Status Read(absl::string_view tensor, uint64_t first, TensorValues out) const = 0;
  // Likewise the optimizer state on the servers: `row` below StateFloatsPerValue, from `first` on.
  virtual absl::Status ReadOptimizerState(absl::string_view tensor,
                                          size_t row,
                                          uint64_t first,
                                          std::span<float> out) const = 0;
  // The steps that the servers' optimizer has made with the tensor; in Async and Bounded with its
  // first chunk.
  virtual absl::StatusOr<uint64_t> Updates(absl::string_view tensor) const = 0;
  // kInvalidArgument: not a row-sparse tensor.
  virtual absl::StatusOr<CheckpointRows> ReadRows(absl::string_view tensor) const = 0;
};

}  // namespace pushpull
