// SPDX-License-Identifier: Apache-2.0
//
// Encodes a worker's gradients with their tensors' codecs (tensor/codec.h), once for each push: a
// resent push must have the same bytes.
//
// With error feedback (HasMemory), the residual, which is what a push leaves out, is kept here and
// added to the next gradient of the chunk. A whole push has the gradient and the residual as
// float32; the residual is empty afterwards. SendWhole asks for whole pushes before a checkpoint,
// so that the checkpoint includes the residual (docs/decisions/0038-error-feedback.md).
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

// What is sent instead of a gradient.
struct EncodedGradient {
  Codec codec = Codec::kNone;               // kNone with bytes: a whole push, as float32
  std::shared_ptr<const HostBuffer> bytes;  // null: the gradient itself is sent
  uint64_t overflows = 0;                   // finite values that the codec cannot represent
};

struct EncodeOptions {
  double weight = 1;         // of the push; 0: the push does not count
  bool is_bypassed = false;  // send it whole: the codec does not pay off on this link
  bool has_gradient = true;  // false: there is none; `gradient` is empty
};

// Thread-confined, as is the release of what Encode returns.
class ChunkEncoder {
 public:
  explicit ChunkEncoder(WorkerId worker) : worker_(worker) {}

  // The codec of each chunk's tensor, by ChunkId.
  void SetCodecs(const std::vector<Codec>& codecs);

  // Encodes `gradient`, float32, for one push of the chunk. The gradient is sent unchanged if the
  // codec would not make it smaller (few values), or if memory is exhausted. Reuses the buffer of
  // the chunk's previous push once nobody refers to it.
  //
  // With error feedback: if the sum with the residual is not finite, or the weight is 0, the
  // gradient is sent unchanged and the residual stays. Without a gradient nothing is encoded and
  // the residual stays, except that a whole push is the residual.
  EncodedGradient Encode(ChunkId chunk,
                         Step step,
                         std::span<const std::byte> gradient,
                         const EncodeOptions& options = {});

  // The pushes of `step` are sent whole, unless the step has been encoded already. Replaces an
  // earlier order.
  void SendWhole(Step step);
  void ForgetWhole();
  // The result of SendWhole. true: no chunk has a residual after that step; false: one does; empty:
  // some pushes are missing, or the result was already returned.
  std::optional<bool> TakeVerdict();

 private:
  struct Chunk {
    Codec codec = Codec::kNone;
    std::shared_ptr<HostBuffer> memory;
    // The residual; null: empty.
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
  size_t awaited_whole_ = 0;  // chunks whose push of that step is missing
  bool has_missed_ = false;   // a chunk has a residual after it
};

}  // namespace pushpull
