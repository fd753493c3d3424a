// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/received_values.h"

#include <cstring>
#include <utility>

#include "runtime/worker/state_rows.h"

namespace pushpull {

std::span<std::byte> ReceivedValues::Place(const LaneLink& link,
                                           const FrameHeader& header,
                                           const ChunkRequest& request) {
  // The value of a sum goes to other workers too.
  if (request.joint != nullptr) return request.joint->value.bytes();
  // Rows are scattered once all have arrived.
  if (keeps_copies_ || request.rows) {
    const std::span<std::byte> buffer = BufferOf(link, header.payload_bytes);
    if (!buffer.empty() || request.rows) return buffer;
  }
  copies_.Invalidate(header.chunk.value(), request.target);  // it may break off midway
  return request.target;
}

void ReceivedValues::Store(const ClientChunk& chunk,
                           const ChunkRequest& request,
                           const ReceivedFrame& frame) {
  if (request.state != nullptr) return StoreState(chunk, request, frame.payload);
  if (request.rows) return request.rows->Store(request.row_part, frame.payload);
  // The value of a sum may be for other workers only.
  if (!frame.payload.empty() && !request.target.empty()) {
    if (frame.payload.data() != request.target.data())
      std::memcpy(request.target.data(), frame.payload.data(), frame.payload.size());
    copies_.Take(frame.header.chunk.value(),
                 {request.target, frame.header.step, HadGradient(frame.header)},
                 request.is_kept);
  }
  if (!request.takes_in_place) return;
  const bool is_here = frame.in_place.bytes.empty();
  request.pending->SetPiece(chunk.offset,
                            is_here ? Payload{request.target, nullptr} : frame.in_place);
}

std::span<std::byte> ReceivedValues::BufferOf(const LaneLink& link, size_t num_bytes) {
  const uint32_t index = link.worker() ? link.worker()->value() : link.server().value();
  HostBuffer& buffer = buffers_[{link.worker().has_value(), index, link.lane()}];
  if (buffer.num_bytes() < num_bytes) {
    absl::StatusOr<HostBuffer> larger = HostBuffer::Uninitialized(num_bytes);
    if (!larger.ok()) return {};
    buffer = *std::move(larger);
  }
  return buffer.bytes().first(num_bytes);
}

}  // namespace pushpull
