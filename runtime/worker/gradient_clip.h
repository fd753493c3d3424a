// SPDX-License-Identifier: Apache-2.0
//
// A worker's half of clipping by the global norm: adds up the sums of squares that the chunks'
// primaries report for a step, and computes the scale that all of them apply
// (docs/decisions/0053-clipping-by-the-global-norm.md).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

// min(1, clip_norm / (norm + 1e-6)), where norm is the square root of `squares`; 1 if that is NaN.
double ClipScale(double clip_norm, double squares);

// At most two steps are under way at once: no clipped chunk completes a step before all of them
// have every contribution to it. Pure. Thread-compatible.
class GradientClip {
 public:
  // Once.
  void SetTensors(const std::vector<PlacedTensor>& tensors);

  // The chunks of clipped tensors, ascending; empty: nothing is clipped.
  std::span<const ChunkId> chunks() const { return chunks_; }
  bool Clips(ChunkId chunk) const;

  // The program has pushed a clipped tensor. Returns true once all of them are pushed in this step.
  bool OnTensorPushed(Step step);
  size_t num_tensors() const { return num_tensors_; }

  // A chunk's primary asks for the scale of `step`.
  void OnSquares(ChunkId chunk, Step step, double squares);
  // A chunk has passed `step` with this scale. 0: unknown (e.g. the value comes from a worker's
  // copy); the chunk is then left out of the norm.
  void OnPassed(ChunkId chunk, Step step, double scale);

  // Empty: some chunk's squares are not known yet.
  std::optional<double> ScaleOf(Step step) const;
  // Whether the chunk's primary has asked for the scale of `step`.
  bool IsAwaited(ChunkId chunk, Step step) const;

 private:
  // Vectors are indexed by position in chunks_.
  struct ClippedStep {
    std::vector<std::optional<double>> squares;
    std::vector<bool> has_passed;
    size_t num_known = 0;
    size_t tensors_pushed = 0;
    std::optional<double> scale;
  };

  ClippedStep* Find(Step step);
  size_t PositionOf(ChunkId chunk) const;
  void Know(ClippedStep& step, size_t position, double squares);

  double clip_norm_ = 0;
  size_t num_tensors_ = 0;
  std::vector<ChunkId> chunks_;
  std::map<Step, ClippedStep> steps_;  // the newest two
};

}  // namespace pushpull
