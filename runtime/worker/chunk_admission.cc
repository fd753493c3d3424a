// SPDX-License-Identifier: Apache-2.0
//
// The part of ChunkClient for jobs whose leading chunk says who counts in a step: backup workers
// (decisions/0018-the-first-chunk-admits.md) and, with chunk_gate.cc, gated steps.
//
//   collecting --1--> asked --2--> settling --3--> collecting
//
// 1 every tensor is pushed: the leading chunk goes first, alone. Gated: last, when the others are
//   held.
// 2 it is answered. Admitted: the other chunks are pushed (gated: are told). Not admitted: nothing
//   more is.
// 3 every chunk is here in one version, the newest that any of them had: what is behind it is
//   fetched. Then the program hears of all its pushes at once.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/replication/admission_frame.h"
#include "runtime/shard/chunk.h"
#include "runtime/worker/chunk_client.h"

namespace pushpull {

void ChunkClient::UseMode(const Consistency& mode) {
  is_led_ = mode.is_led() && !chunks_.empty();
  is_gated_ = is_led_ && mode.gated;
  BeginStep();
}

void ChunkClient::BeginStep() {
  step_phase_ = StepPhase::kCollecting;
  tensors_pushed_ = 0;
}

bool ChunkClient::IsLeading(const Chunk& chunk) const {
  return &chunk == &chunks_[kLeadingChunk.value()];
}

void ChunkClient::Collect(const TensorRequest& request) {
  if (++tensors_pushed_ < tensor_chunks_.size()) {
    return request.pending->SetNote(
        absl::StrCat(is_gated_ ? "a gated step is applied" : "with backup workers a step goes out",
                     " when all of its ",
                     tensor_chunks_.size(),
                     " tensors are pushed"));
  }
  if (is_gated_) return AskIfHeld();
  Ask();
}

// The leading chunk's push, which is the worker's word that it has everything of the step.
void ChunkClient::Ask() {
  step_phase_ = StepPhase::kAsked;
  for (const auto& [first, count] : tensor_chunks_) {
    if (count > 0) chunks_[first].push->pending->SetNote("");
  }
  Chunk& leading = chunks_[kLeadingChunk.value()];
  leading.push->is_held = false;
  Send(leading, *leading.push, false);
}

void ChunkClient::CatchUp(const std::vector<TensorRequest>& values) {
  for (const TensorRequest& value : values) {
    const auto [first, count] = tensor_chunks_[value.tensor];
    for (size_t i = first; i < first + count; ++i)
      value.pending->Expect(shards_.entry(chunks_[i].shard).primary.value_or(ServerId{}), 1);
    for (size_t i = first; i < first + count; ++i) {
      Chunk& chunk = chunks_[i];
      chunk.push = Request{.type = FrameType::kPull,
                           .step = chunk.version,
                           .clock = {},
                           .base_version = {},
                           .source = {},
                           .target = value.target.subspan(chunk.offset, chunk.bytes),
                           .weight = 0,
                           .learning_rate = 0,
                           .priority = value.priority,
                           .server = shards_.entry(chunk.shard).primary.value_or(ServerId{}),
                           .encoded = {},
                           .times = {},
                           .sent = {},
                           .is_answered = true,
                           .held_version = chunk.version,
                           .pending = value.pending};
    }
  }
  step_phase_ = StepPhase::kSettling;
  Settle();
}

void ChunkClient::HearAdmission(const ReceivedFrame& frame, std::span<const std::byte>& meta) {
  if ((frame.header.flags & kFlagAdmission) == 0) return;
  absl::StatusOr<Admission> heard = TakeAdmission(meta);
  if (heard.ok() && (!admission_ || admission_->step < heard->step)) admission_ = *std::move(heard);
}

void ChunkClient::OnStepAnswered(Chunk& chunk, Slot slot, Request request, Step version) {
  if (slot == &Chunk::push) {
    request.is_answered = true;
    chunk.push = std::move(request);
  }
  chunk.push->held_version = version;
  // Of a gated step, another chunk's answer may come first: others have said what is decided.
  if (step_phase_ == StepPhase::kAsked && chunks_[kLeadingChunk.value()].push->is_answered)
    return OnDecided();
  AskIfHeld();
  Settle();
}

void ChunkClient::OnDecided() {
  const Chunk& leading = chunks_[kLeadingChunk.value()];
  const Step step = leading.push->step;
  const bool is_admitted = leading.push->held_version == Step{step.value() + 1} && admission_ &&
                           admission_->step == step && admission_->Has(options_.hello.worker);
  step_phase_ = StepPhase::kSettling;
  for (Chunk& chunk : chunks_) {
    chunk.push->is_held = false;
    chunk.push->is_answered = chunk.push->is_answered || !is_admitted;
  }
  for (Chunk& chunk : chunks_) {
    // An answer may come at once.
    if (!chunk.push || chunk.push->is_answered) continue;
    if (is_gated_) {
      SendDecision(chunk);
    } else {
      Send(chunk, *chunk.push, false);
    }
  }
  Settle();
}

void ChunkClient::Settle() {
  if (step_phase_ != StepPhase::kSettling) return;
  const bool is_waiting = std::any_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
    return !chunk.push->is_answered || chunk.fetch;
  });
  if (is_waiting) return;
  Step newest;
  for (const Chunk& chunk : chunks_) newest = std::max(newest, chunk.push->held_version);
  // The leading chunk is never behind, and says with its version what brings the others there.
  Chunk& leading = chunks_[kLeadingChunk.value()];
  if (leading.push->held_version < newest) return Fetch({&leading}, newest);
  std::vector<Chunk*> behind;
  for (Chunk& chunk : chunks_) {
    if (chunk.push->held_version < newest) behind.push_back(&chunk);
  }
  if (!behind.empty()) return Fetch(behind, newest);
  FinishStep(newest);
}

void ChunkClient::Fetch(const std::vector<Chunk*>& chunks, Step version) {
  for (Chunk* chunk : chunks) {
    const Request& push = *chunk->push;
    std::span<std::byte> target = push.target;
    if (target.empty()) {
      // The program does not want the value; it is received and forgotten.
      scratch_.resize(std::max<size_t>(scratch_.size(), kChunkBytes));
      target = std::span(scratch_).first(chunk->bytes);
    }
    chunk->fetch = Request{.type = FrameType::kFetch,
                           .step = version,
                           .clock = {},
                           .base_version = Step{++reads_},
                           .source = {},
                           .target = target,
                           .weight = 0,
                           .learning_rate = 0,
                           .priority = push.priority,
                           .server = push.server,
                           .encoded = {},
                           .times = {},
                           .sent = {},
                           .pending = push.pending};
  }
  for (Chunk* chunk : chunks) {
    if (chunk->fetch) Send(*chunk, *chunk->fetch, false);
  }
}

void ChunkClient::FinishStep(Step version) {
  BeginStep();
  std::vector<Request> done;
  done.reserve(chunks_.size());
  for (Chunk& chunk : chunks_) {
    chunk.clock = version;
    done.push_back(*std::move(chunk.push));
    chunk.push.reset();
  }
  observer_.OnStepSettled(version);
  for (const Request& request : done) {
    if (IsPush(request.type)) meter_->OnApplied(request.step, executor_.Now(), request.phases);
    request.pending->PartDone(request.server);
  }
  observer_.OnAnswered();
}

void ChunkClient::FailStep(const absl::Status& why) {
  BeginStep();
  std::vector<std::shared_ptr<PendingOperation>> failed;
  for (Chunk& chunk : chunks_) {
    if (chunk.push) failed.push_back(chunk.push->pending);
    chunk.push.reset();
    chunk.fetch.reset();
  }
  for (const std::shared_ptr<PendingOperation>& pending : failed) pending->Fail(why);
}

}  // namespace pushpull
