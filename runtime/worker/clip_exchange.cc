// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/clip_exchange.h"

#include <optional>
#include <span>

#include "absl/strings/str_cat.h"

namespace pushpull {

void ClipExchange::OnPush(const TensorRequest& request) {
  const std::span<const ClientChunk> chunks = chunks_.ChunksOf(request.tensor);
  if (clip_.chunks().empty() || !clip_.Clips(chunks_.IdOf(chunks.front()))) return;
  if (!clip_.OnTensorPushed(request.step)) {
    return request.pending->SetNeed(absl::StrCat("a step is clipped when all of its ",
                                                 clip_.num_tensors(),
                                                 " tensors with clip_norm are pushed"));
  }
  for (const ChunkId id : clip_.chunks()) {
    const ClientChunk& chunk = *chunks_.Find(id);
    if (chunk.push && chunk.push->step == request.step) chunk.push->pending->SetNeed("");
  }
}

void ClipExchange::OnSquares(const ClientChunk& chunk, double squares) {
  const ChunkId id = chunks_.IdOf(chunk);
  if (chunk.push->is_answered || !clip_.Clips(id)) return;
  const Step step = chunk.push->step;
  const bool was_known = clip_.ScaleOf(step).has_value();
  clip_.OnSquares(id, step, squares);
  if (!was_known) return SendScales(step);
  // Asked again, because the answer was lost or the primary has changed; or asked late.
  sender_.SendScale(chunk, *clip_.ScaleOf(step));
}

void ClipExchange::OnVersion(ChunkId chunk, Step version, double scale) {
  if (version == Step{0} || !clip_.Clips(chunk)) return;
  const Step step{version.value() - 1};
  const bool was_known = clip_.ScaleOf(step).has_value();
  clip_.OnPassed(chunk, step, scale);
  if (!was_known) SendScales(step);
}

void ClipExchange::SendScales(Step step) {
  const std::optional<double> scale = clip_.ScaleOf(step);
  if (!scale) return;
  for (const ChunkId id : clip_.chunks()) {
    const ClientChunk& chunk = *chunks_.Find(id);
    if (chunk.push && chunk.push->step == step && clip_.IsAwaited(id, step))
      sender_.SendScale(chunk, *scale);
  }
}

}  // namespace pushpull
