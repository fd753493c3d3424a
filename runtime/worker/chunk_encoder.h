// SPDX-License-Identifier: Apache-2.0
//
// A worker's gradients as their tensors' codecs write them (tensor/codec.h): once for each push,
// for what is sent again must be the same bytes.
//
// Of codecs with a memory (HasMemory), what a push leaves out is kept here and added to the next
// gradient of the chunk. A push that goes whole has the gradient and all that was left out before,
// as float32; after it nothing is left out. Before a checkpoint that is asked for (SendWhole), so
// the memory is in what is saved (decisions/0038-error-feedback.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// What is sent in a gradient's place.
struct EncodedGradient {
  Codec codec = Codec::kNone;               // kNone with bytes: the values to be added, as float32
  std::shared_ptr<const HostBuffer> bytes;  // null: the gradient itself is sent
  uint64_t overflows = 0;                   // finite values that the codec cannot hold
};

struct EncodeOptions {
  double weight = 1;         // of the push: with 0 nothing counts that comes with it
  bool is_bypassed = false;  // it goes whole: the codec does not pay on this link
};

// Thread-confined, with the last owners of what Encode returns.
class ChunkEncoder {
 public:
  explicit ChunkEncoder(WorkerId worker) : worker_(worker) {}

  // Of each chunk's tensor, by ChunkId.
  void SetCodecs(const std::vector<Codec>& codecs);

  // `gradient`, float32, of one push of the chunk. It goes as it is where its codec would not make
  // it smaller (of few values), and where there is no memory. The memory of the chunk's push before
  // is used again when nobody holds that any more.
  //
  // With a memory: where the sum with what was left out is not finite, and where the weight is 0,
  // the gradient goes as it is and what was left out stays.
  EncodedGradient Encode(ChunkId chunk,
                         Step step,
                         std::span<const std::byte> gradient,
                         const EncodeOptions& options = {});

  // The pushes of `step` go whole, unless the step has been encoded already. Another order of
  // before is forgotten.
  void SendWhole(Step step);
  void ForgetWhole();
  // What has become of SendWhole: true, no chunk has anything left out after that step; false, one
  // does; nothing, some are still to come. A verdict is said once.
  std::optional<bool> TakeVerdict();

 private:
  struct Chunk {
    Codec codec = Codec::kNone;
    std::shared_ptr<HostBuffer> memory;
    // Of codecs with a memory: what has not been sent yet; null: nothing.
    std::shared_ptr<HostBuffer> left_out;
    Step next;  // one more than the last step that was encoded
    bool is_awaited_whole = false;
  };

  EncodedGradient EncodeSmaller(Chunk& chunk,
                                std::span<const float> gradient,
                                double weight,
                                uint64_t seed);
  EncodedGradient EncodeAndKeep(Chunk& chunk, std::span<const float> gradient);
  EncodedGradient EncodeWhole(Chunk& chunk, std::span<const float> gradient);
  std::optional<std::span<float>> AddLeftOut(const Chunk& chunk, std::span<const float> gradient);
  void JudgeWhole(Chunk& chunk);

  const WorkerId worker_;
  std::vector<Chunk> chunks_;
  HostBuffer sum_;  // scratch
  std::optional<Step> whole_step_;
  size_t awaited_whole_ = 0;  // chunks that have not had the step yet
  bool has_missed_ = false;   // a chunk had something left out after it
};

}  // namespace pushpull
