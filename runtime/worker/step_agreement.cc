// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/step_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/shard/chunk.h"

namespace pushpull {

void StepAgreement::UseMode(const Consistency& mode) {
  is_led_ = mode.is_led() && !chunks_.chunks().empty();
  is_gated_ = is_led_ && mode.gated;
  Restart();
}

void StepAgreement::Restart() {
  phase_ = Phase::kCollecting;
  tensors_pushed_ = 0;
}

void StepAgreement::OnTensorPushed(PendingOperation& pending) {
  if (++tensors_pushed_ == chunks_.num_tensors()) return;
  pending.SetNeed(
      absl::StrCat(is_gated_ ? "a gated step is applied" : "with backup workers a step goes out",
                   " when all of its ",
                   chunks_.num_tensors(),
                   " tensors are pushed"));
}

StepActions StepAgreement::Next() {
  if (!is_led_ && phase_ != Phase::kSettling) return {};
  if (phase_ == Phase::kCollecting) return MayAsk() ? Ask() : StepActions{};
  // In a gated step another chunk's answer may arrive first: other workers have sent it the
  // decision.
  if (phase_ == Phase::kAsked) {
    if (!chunks_.leading().push->is_answered) return {};
    StepActions actions = Decide();
    if (!actions.empty()) return actions;
  }
  return FetchOrFinish();
}

bool StepAgreement::MayAsk() const {
  if (tensors_pushed_ != chunks_.num_tensors()) return false;
  return !is_gated_ || std::ranges::all_of(chunks_.chunks(), [&](const ClientChunk& chunk) {
    return chunks_.IsLeading(chunk) || chunk.push->is_taken || chunk.push->is_answered;
  });
}

// The leading chunk's push tells the servers that the worker's step is complete.
StepActions StepAgreement::Ask() {
  phase_ = Phase::kAsked;
  was_admitted_ = false;
  for (size_t i = 0; i < chunks_.num_tensors(); ++i) {
    const std::span<ClientChunk> chunks = chunks_.ChunksOf(i);
    if (!chunks.empty()) chunks.front().push->pending->SetNeed("");
  }
  chunks_.leading().push->is_held = false;
  return {.push = {chunks_.IdOf(chunks_.leading())}};
}

StepActions StepAgreement::Decide() {
  phase_ = Phase::kSettling;
  const ChunkRequest& leading = *chunks_.leading().push;
  const bool is_admitted = leading.held_version == Step{leading.step.value() + 1} && admission_ &&
                           admission_->step == leading.step && admission_->Has(worker_);
  was_admitted_ = is_admitted;
  StepActions actions;
  std::vector<ChunkId>& chunks = is_gated_ ? actions.decide : actions.push;
  for (ClientChunk& chunk : chunks_.chunks()) {
    chunk.push->is_held = false;
    chunk.push->is_answered = chunk.push->is_answered || !is_admitted;
    if (!chunk.push->is_answered) chunks.push_back(chunks_.IdOf(chunk));
  }
  return actions;
}

StepActions StepAgreement::FetchOrFinish() {
  Step newest;
  for (const ClientChunk& chunk : chunks_.chunks()) {
    if (!chunk.push->is_answered || chunk.fetch) return {};
    newest = std::max(newest, chunk.push->held_version);
  }
  // The leading chunk is fetched first, alone: its answer has the admission of that version's step,
  // which the other chunks' servers may need to reach that version.
  const bool is_leading_behind = chunks_.leading().push->held_version < newest;
  StepActions actions;
  for (ClientChunk& chunk : chunks_.chunks()) {
    if (chunk.push->held_version == newest) continue;
    if (is_leading_behind && !chunks_.IsLeading(chunk)) continue;
    BeginFetch(chunk, newest);
    actions.fetch.push_back(chunks_.IdOf(chunk));
  }
  if (!actions.fetch.empty()) return actions;
  Restart();
  return {.settled = newest};
}

void StepAgreement::BeginFetch(ClientChunk& chunk, Step version) {
  const ChunkRequest& push = *chunk.push;
  std::span<std::byte> target = push.target;
  if (target.empty()) {
    if (scratch_.empty()) scratch_.resize(kChunkBytes);
    target = std::span(scratch_).first(chunk.bytes);
  }
  chunk.fetch = ChunkRequest{.type = FrameType::kFetch,
                             .step = version,
                             .base_version = chunks_.BeginRead(),
                             .target = target,
                             .priority = push.priority,
                             .server = push.server,
                             .pending = push.pending};
}

const Admission* StepAgreement::AdmissionFor(const ClientChunk& chunk,
                                             const ChunkRequest& request) const {
  if (!is_led_ || !admission_ || chunks_.IsLeading(chunk)) return nullptr;
  const bool is_of_step = IsPush(request.type) && admission_->step == request.step;
  return is_of_step || request.type == FrameType::kFetch ? &*admission_ : nullptr;
}

}  // namespace pushpull
