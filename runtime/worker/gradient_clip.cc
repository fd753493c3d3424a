// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/gradient_clip.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

constexpr size_t kClippedStepsMax = 2;

// As in torch.nn.utils.clip_grad_norm_.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

double ClipScale(double clip_norm, double squares) {
  const double scale = clip_norm / (std::sqrt(squares) + kClipEpsilon);
  return scale < 1 ? scale : 1;
}

void GradientClip::SetTensors(const std::vector<PlacedTensor>& tensors) {
  for (const PlacedTensor& tensor : tensors) {
    if (!(tensor.spec.clip_norm > 0)) continue;
    clip_norm_ = tensor.spec.clip_norm;
    ++num_tensors_;
    for (size_t i = 0; i < tensor.shards.size(); ++i)
      chunks_.emplace_back(tensor.first_chunk.value() + i);
  }
  absl::c_sort(chunks_);
}

bool GradientClip::Clips(ChunkId chunk) const {
  return absl::c_binary_search(chunks_, chunk);
}

size_t GradientClip::PositionOf(ChunkId chunk) const {
  return static_cast<size_t>(absl::c_lower_bound(chunks_, chunk) - chunks_.begin());
}

// Null: the step is older than the remembered ones.
GradientClip::ClippedStep* GradientClip::Find(Step step) {
  const auto known = steps_.find(step);
  if (known != steps_.end()) return &known->second;
  if (steps_.size() == kClippedStepsMax) {
    if (step < steps_.begin()->first) return nullptr;
    steps_.erase(steps_.begin());
  }
  ClippedStep& fresh = steps_[step];
  fresh.squares.resize(chunks_.size());
  fresh.has_passed.resize(chunks_.size());
  return &fresh;
}

bool GradientClip::OnTensorPushed(Step step) {
  ClippedStep* clipped = Find(step);
  return clipped != nullptr && ++clipped->tensors_pushed == num_tensors_;
}

void GradientClip::OnSquares(ChunkId chunk, Step step, double squares) {
  if (ClippedStep* clipped = Find(step)) Know(*clipped, PositionOf(chunk), squares);
}

void GradientClip::OnPassed(ChunkId chunk, Step step, double scale) {
  ClippedStep* clipped = Find(step);
  if (clipped == nullptr) return;
  const size_t position = PositionOf(chunk);
  clipped->has_passed[position] = true;
  if (clipped->scale) return;
  if (scale > 0) {
    clipped->scale = scale;
  } else if (!clipped->squares[position]) {
    Know(*clipped, position, 0);
  }
}

// A primary may report again: it is new and adds in another order, or without a worker that died. A
// scale that has been sent to any chunk stays.
void GradientClip::Know(ClippedStep& step, size_t position, double squares) {
  if (!step.squares[position]) ++step.num_known;
  step.squares[position] = squares;
  if (step.scale || step.num_known < chunks_.size()) return;
  double total = 0;
  for (const std::optional<double>& of_chunk : step.squares) total += *of_chunk;
  step.scale = ClipScale(clip_norm_, total);
}

std::optional<double> GradientClip::ScaleOf(Step step) const {
  const auto known = steps_.find(step);
  return known == steps_.end() ? std::nullopt : known->second.scale;
}

bool GradientClip::IsAwaited(ChunkId chunk, Step step) const {
  const auto known = steps_.find(step);
  if (known == steps_.end()) return false;
  const size_t position = PositionOf(chunk);
  return known->second.squares[position].has_value() && !known->second.has_passed[position];
}

}  // namespace pushpull
