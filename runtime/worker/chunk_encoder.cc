// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_encoder.h"

#include <utility>

namespace pushpull {

void ChunkEncoder::SetCodecs(std::vector<Codec> codecs) {
  chunks_.clear();
  for (const Codec codec : codecs) chunks_.push_back({.codec = codec, .memory = nullptr});
}

EncodedGradient ChunkEncoder::Encode(ChunkId chunk,
                                     Step step,
                                     std::span<const std::byte> gradient) {
  Chunk& known = chunks_[chunk.value()];
  const size_t num_values = gradient.size() / sizeof(float);
  const size_t num_bytes = EncodedBytes(known.codec, num_values);
  if (known.codec == Codec::kNone || num_bytes >= gradient.size()) return {};
  if (known.memory == nullptr || known.memory.use_count() > 1) {
    absl::StatusOr<HostBuffer> fresh = HostBuffer::Uninitialized(num_bytes);
    if (!fresh.ok()) return {};
    known.memory = std::make_shared<HostBuffer>(*std::move(fresh));
  }
  // They have been floats before somebody called them bytes.
  const std::span<const float> values(reinterpret_cast<const float*>(gradient.data()), num_values);
  const uint64_t seed = RoundingSeed(worker_.value(), step.value(), chunk.value());
  const uint64_t overflows = pushpull::Encode(known.codec, values, seed, known.memory->bytes());
  return {.codec = known.codec, .bytes = known.memory, .overflows = overflows};
}

}  // namespace pushpull
