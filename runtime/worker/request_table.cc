// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/request_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/consistency/admission.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/shard/chunk.h"
#include "runtime/store/row_layout.h"

namespace pushpull {

void RequestTable::SetTensors(const std::vector<PlacedTensor>& tensors) {
  for (const PlacedTensor& tensor : tensors) {
    // Chunks are cut by the size of their master values.
    const DType dtype = tensor.spec.dtype;
    const uint64_t bytes = NarrowBytes(dtype, PlacedBytes(tensor.spec).value_or(0));
    const uint64_t chunk_bytes = NarrowBytes(dtype, kChunkBytes);
    tensors_.emplace_back(chunks_.size(), tensor.shards.size());
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const uint64_t offset = i * chunk_bytes;
      chunks_.push_back({.shard = tensor.shards[i],
                         .dtype = dtype,
                         .holds_samples = tensor.spec.name == kSampleQueueTensor,
                         .offset = offset,
                         .bytes = std::min(chunk_bytes, bytes - offset),
                         .tensor_bytes = bytes});
    }
  }
}

std::span<ClientChunk> RequestTable::ChunksOf(size_t tensor) {
  const auto [first, count] = tensors_[tensor];
  return chunks().subspan(first, count);
}

ClientChunk& RequestTable::leading() {
  return chunks_[kLeadingChunk.value()];
}

bool RequestTable::IsLeading(const ClientChunk& chunk) const {
  return IdOf(chunk) == kLeadingChunk;
}

void RequestTable::ForEachRequest(const std::function<void(ClientChunk&, Slot)>& visit) {
  for (ClientChunk& chunk : chunks_) {
    if (chunk.push) visit(chunk, &ClientChunk::push);
    if (chunk.pull) visit(chunk, &ClientChunk::pull);
    if (chunk.fetch) visit(chunk, &ClientChunk::fetch);
  }
}

RequestTable::Slot RequestTable::AnsweredBy(const ClientChunk& chunk, const FrameHeader& answer) {
  const bool has_payload = answer.payload_bytes > 0;
  const bool awaits_push = chunk.push && !chunk.push->is_held && !chunk.push->is_answered;
  if (awaits_push && chunk.push->wants_value() == has_payload) {
    const bool is_init = chunk.push->type == FrameType::kInit && answer.clock == Step{0};
    const bool is_of_push = answer.clock == Step{chunk.push->step.value() + 1};
    if (is_init || is_of_push) return &ClientChunk::push;
  }
  const auto answers = [&](const std::optional<ChunkRequest>& read) {
    return read && (has_payload || read->rows) && answer.clock == Step{0} &&
           answer.base_version == read->base_version && answer.step >= read->step;
  };
  if (answers(chunk.pull)) return &ClientChunk::pull;
  return answers(chunk.fetch) ? &ClientChunk::fetch : nullptr;
}

RequestTable::Slot RequestTable::RefusedBy(const ClientChunk& chunk, const FrameHeader& refusal) {
  if (chunk.push && !chunk.push->is_held && !chunk.push->is_answered) return &ClientChunk::push;
  const bool is_of_fetch =
      chunk.fetch && (!chunk.pull || refusal.base_version == chunk.fetch->base_version);
  return is_of_fetch ? &ClientChunk::fetch : &ClientChunk::pull;
}

Step RequestTable::LowestVersion() const {
  const auto lowest = std::ranges::min_element(chunks_, {}, &ClientChunk::version);
  return lowest == chunks_.end() ? Step{} : lowest->version;
}

Step RequestTable::LowestClock() const {
  const auto lowest = std::ranges::min_element(chunks_, {}, &ClientChunk::clock);
  return lowest == chunks_.end() ? Step{} : lowest->clock;
}

bool RequestTable::has_pushes() const {
  return std::ranges::any_of(chunks_,
                             [](const ClientChunk& chunk) { return chunk.push.has_value(); });
}

void RequestTable::RaiseVersions(Step version) {
  for (ClientChunk& chunk : chunks_) chunk.version = std::max(chunk.version, version);
}

absl::Status RequestTable::FailAll(const absl::Status& why) {
  absl::Status first;
  ForEachRequest([&](ClientChunk& chunk, Slot slot) {
    const std::shared_ptr<PendingOperation> pending = (chunk.*slot)->pending;
    (chunk.*slot).reset();
    const std::string missing = absl::StrCat("no answer from ", pending->MissingServers());
    if (first.ok()) first = absl::Status(why.code(), absl::StrCat(pending->what(), ": ", missing));
    pending->Fail(absl::Status(why.code(), absl::StrCat(missing, ": ", why.message())));
  });
  return first;
}

void RequestTable::FailStep(const absl::Status& why) {
  std::vector<std::shared_ptr<PendingOperation>> failed;
  for (ClientChunk& chunk : chunks_) {
    if (chunk.push) failed.push_back(chunk.push->pending);
    chunk.push.reset();
    chunk.fetch.reset();
  }
  for (const std::shared_ptr<PendingOperation>& pending : failed) pending->Fail(why);
}

std::vector<ChunkRequest> RequestTable::FinishStep(Step version) {
  std::vector<ChunkRequest> finished;
  finished.reserve(chunks_.size());
  for (ClientChunk& chunk : chunks_) {
    chunk.clock = version;
    finished.push_back(*std::move(chunk.push));
    chunk.push.reset();
  }
  return finished;
}

}  // namespace pushpull
