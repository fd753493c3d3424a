// SPDX-License-Identifier: Apache-2.0
//
// A worker's gradients as their tensors' codecs write them (tensor/codec.h): once for each push,
// for what is sent again must be the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// What is sent in a gradient's place.
struct EncodedGradient {
  Codec codec = Codec::kNone;
  std::shared_ptr<const HostBuffer> bytes;  // null with kNone: the gradient itself is sent
  uint64_t overflows = 0;                   // finite values that the codec cannot hold
};

// Thread-confined, with the last owners of what Encode returns.
class ChunkEncoder {
 public:
  explicit ChunkEncoder(WorkerId worker) : worker_(worker) {}

  // Of each chunk's tensor, by ChunkId.
  void SetCodecs(std::vector<Codec> codecs);

  // `gradient`, float32, of one push of the chunk. It goes as it is where its codec would not make
  // it smaller (of few values), and where there is no memory. The memory of the chunk's push before
  // is used again when nobody holds that any more.
  EncodedGradient Encode(ChunkId chunk, Step step, std::span<const std::byte> gradient);

 private:
  struct Chunk {
    Codec codec = Codec::kNone;
    std::shared_ptr<HostBuffer> memory;
  };

  const WorkerId worker_;
  std::vector<Chunk> chunks_;
};

}  // namespace pushpull
