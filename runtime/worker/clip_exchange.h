// SPDX-License-Identifier: Apache-2.0
//
// The frames of clipping by the global norm on a worker: collects the sums of squares from the
// primaries and sends the scale to every chunk that waits for it
// (docs/decisions/0053-clipping-by-the-global-norm.md).
#pragma once

#include <vector>

#include "runtime/base/ids.h"
#include "runtime/store/placed_tensor.h"
#include "runtime/transport/frame.h"
#include "runtime/worker/chunk_sender.h"
#include "runtime/worker/gradient_clip.h"
#include "runtime/worker/request_table.h"

namespace pushpull {

// Thread-confined to its executor.
class ClipExchange {
 public:
  // Both outlive this object.
  ClipExchange(RequestTable& chunks, ChunkSender& sender) : chunks_(chunks), sender_(sender) {}

  // Once.
  void SetTensors(const std::vector<PlacedTensor>& tensors) { clip_.SetTensors(tensors); }

  // The program has pushed a tensor; the push is in `chunks`. A step cannot complete until all
  // clipped tensors are pushed: a Wait that times out before then says so.
  void OnPush(const TensorRequest& request);
  // The chunk's primary asks for the scale of the step of the chunk's push.
  void OnSquares(const ClientChunk& chunk, double squares);
  // A chunk has reached this version, by a step that was clipped with `scale`; 0: not clipped, or
  // unknown.
  void OnVersion(ChunkId chunk, Step version, double scale);

 private:
  void SendScales(Step step);

  RequestTable& chunks_;
  ChunkSender& sender_;
  GradientClip clip_;
};

}  // namespace pushpull
