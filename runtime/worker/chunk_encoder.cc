// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_encoder.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/tensor/reduce.h"

namespace pushpull {

void ChunkEncoder::SetCodecs(const std::vector<Codec>& codecs) {
  chunks_.clear();
  for (const Codec codec : codecs)
    chunks_.push_back({.codec = codec, .memory = nullptr, .left_out = nullptr});
}

EncodedGradient ChunkEncoder::Encode(ChunkId chunk,
                                     Step step,
                                     std::span<const std::byte> gradient,
                                     const EncodeOptions& options) {
  Chunk& known = chunks_[chunk.value()];
  // The step has passed without this chunk: its residual now is its residual then.
  if (known.is_awaited_whole && step > *whole_step_) JudgeWhole(known);
  const bool goes_whole = known.is_awaited_whole && step == *whole_step_;
  known.next = Step{step.value() + 1};
  const size_t num_values = gradient.size() / sizeof(float);
  // The bytes were floats originally.
  const std::span<const float> values(reinterpret_cast<const float*>(gradient.data()), num_values);
  EncodedGradient encoded;
  if (!options.has_gradient) {
    if (goes_whole && options.weight > 0) encoded.bytes = std::exchange(known.left_out, nullptr);
  } else if (HasMemory(known.codec) && (goes_whole || options.is_bypassed)) {
    if (options.weight > 0) encoded = EncodeWhole(known, values);
  } else if (known.codec != Codec::kNone && !options.is_bypassed) {
    encoded = EncodeSmaller(
        known, values, options.weight, RoundingSeed(worker_.value(), step.value(), chunk.value()));
  }
  if (goes_whole) JudgeWhole(known);
  return encoded;
}

EncodedGradient ChunkEncoder::EncodeSmaller(Chunk& chunk,
                                            std::span<const float> gradient,
                                            double weight,
                                            uint64_t seed) {
  const size_t num_bytes = EncodedBytes(chunk.codec, gradient.size());
  if (num_bytes >= gradient.size_bytes()) return {};
  if (HasMemory(chunk.codec) && !(weight > 0)) return {};
  if (chunk.memory == nullptr || chunk.memory.use_count() > 1) {
    absl::StatusOr<HostBuffer> fresh = HostBuffer::Uninitialized(num_bytes);
    if (!fresh.ok()) return {};
    chunk.memory = std::make_shared<HostBuffer>(*std::move(fresh));
  }
  if (HasMemory(chunk.codec)) return EncodeAndKeep(chunk, gradient);
  const uint64_t overflows = pushpull::Encode(chunk.codec, gradient, seed, chunk.memory->bytes());
  return {.codec = chunk.codec, .bytes = chunk.memory, .overflows = overflows};
}

// The sum, in sum_, of the gradient and what was left out before; empty if they must not be added.
std::optional<std::span<float>> ChunkEncoder::AddLeftOut(const Chunk& chunk,
                                                         std::span<const float> gradient) {
  if (sum_.num_bytes() < gradient.size_bytes()) {
    absl::StatusOr<HostBuffer> larger = HostBuffer::Uninitialized(gradient.size_bytes());
    if (!larger.ok()) return std::nullopt;
    sum_ = *std::move(larger);
  }
  const std::span<float> sum = sum_.floats().first(gradient.size());
  std::copy(gradient.begin(), gradient.end(), sum.begin());
  if (chunk.left_out != nullptr) AddScaled(sum, chunk.left_out->floats(), 1);
  if (!AllFinite(sum)) return std::nullopt;
  return sum;
}

EncodedGradient ChunkEncoder::EncodeAndKeep(Chunk& chunk, std::span<const float> gradient) {
  const std::optional<std::span<float>> sum = AddLeftOut(chunk, gradient);
  if (!sum) return {};
  if (chunk.left_out == nullptr) {
    absl::StatusOr<HostBuffer> fresh = HostBuffer::Uninitialized(gradient.size_bytes());
    if (!fresh.ok()) return {};
    chunk.left_out = std::make_shared<HostBuffer>(*std::move(fresh));
  }
  pushpull::Encode(chunk.codec, *sum, 0, chunk.memory->bytes());
  const std::span<float> left_out = chunk.left_out->floats();
  PUSHPULL_CHECK(Decode(chunk.codec, chunk.memory->bytes(), left_out).ok());
  for (size_t i = 0; i < left_out.size(); ++i) left_out[i] = (*sum)[i] - left_out[i];
  return {.codec = chunk.codec, .bytes = chunk.memory};
}

EncodedGradient ChunkEncoder::EncodeWhole(Chunk& chunk, std::span<const float> gradient) {
  if (chunk.left_out == nullptr) return {};
  const std::optional<std::span<float>> sum = AddLeftOut(chunk, gradient);
  if (!sum) return {};
  const std::shared_ptr<HostBuffer> whole = std::exchange(chunk.left_out, nullptr);
  std::copy(sum->begin(), sum->end(), whole->floats().begin());
  return {.codec = Codec::kNone, .bytes = whole};
}

void ChunkEncoder::SendWhole(Step step) {
  whole_step_ = step;
  awaited_whole_ = 0;
  has_missed_ = false;
  for (Chunk& chunk : chunks_) {
    chunk.is_awaited_whole = HasMemory(chunk.codec);
    if (!chunk.is_awaited_whole) continue;
    ++awaited_whole_;
    if (chunk.next > step) JudgeWhole(chunk);
  }
}

void ChunkEncoder::ForgetWhole() {
  whole_step_.reset();
  for (Chunk& chunk : chunks_) chunk.is_awaited_whole = false;
}

void ChunkEncoder::JudgeWhole(Chunk& chunk) {
  chunk.is_awaited_whole = false;
  --awaited_whole_;
  has_missed_ = has_missed_ || chunk.left_out != nullptr;
}

std::optional<bool> ChunkEncoder::TakeVerdict() {
  const bool is_pending = !whole_step_ || (awaited_whole_ > 0 && !has_missed_);
  if (is_pending) return std::nullopt;
  const bool is_whole = !has_missed_;
  ForgetWhole();
  return is_whole;
}

}  // namespace pushpull
