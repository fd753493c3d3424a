// SPDX-License-Identifier: Apache-2.0
//
// The part of ChunkClient for gated steps (consistency/gate.h, decisions/0019-gated-step.md); the
// phases are those of chunk_admission.cc. Other chunks are pushed as the program brings them; the
// leading one, which is the ask, when all of them are held by their servers.
#include <algorithm>
#include <utility>

#include "runtime/replication/admission_frame.h"
#include "runtime/worker/chunk_client.h"

namespace pushpull {

void ChunkClient::OnHeld(LaneLink& link, Chunk& chunk, const FrameHeader& header) {
  // One that is not the primary any more does not have it for the step. It goes to the new one.
  if (LinkFor(chunk.shard) != &link || !chunk.push || chunk.push->step != header.step) return;
  chunk.push->is_taken = true;
  AskIfHeld();
}

void ChunkClient::AskIfHeld() {
  const bool is_pushed = tensors_pushed_ == tensor_chunks_.size();
  if (!is_gated_ || step_phase_ != StepPhase::kCollecting || !is_pushed) return;
  const bool is_held = std::all_of(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
    return IsLeading(chunk) || chunk.push->is_taken || chunk.push->is_answered;
  });
  if (!is_held) return;
  Ask();
}

// Where it gets lost the push goes again, and has it with it.
void ChunkClient::SendDecision(const Chunk& chunk) {
  LaneLink* link = LinkFor(chunk.shard);
  if (link == nullptr || link->channel() == nullptr) return;
  link->channel()->Send(
      {.header = {.type = FrameType::kDecided,
                  .flags = kFlagAdmission,
                  .priority = chunk.push->priority,
                  .worker = options_.hello.worker,
                  .incarnation = options_.hello.incarnation,
                  .epoch = shards_.entry(chunk.shard).epoch,
                  .chunk = ChunkId{static_cast<uint64_t>(&chunk - chunks_.data())},
                  .step = admission_->step},
       .meta = EncodeAdmission(*admission_),
       .payload = {}});
}

}  // namespace pushpull
