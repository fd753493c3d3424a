// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/row_payload.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/store/row_layout.h"

namespace pushpull {

static_assert(kRowPayloadBytesMax == kFramePayloadBytesMax);

absl::Status CheckRowBytes(const Chunk& chunk, const FrameHeader& frame) {
  const size_t dim = chunk.state().rows()->dim();
  const size_t one = frame.type == FrameType::kPull ? sizeof(uint64_t) : SparseRowBytes(dim);
  const bool fits =
      frame.payload_bytes % one == 0 && frame.payload_bytes / one <= RowsPerChunkMax(dim);
  if (fits && frame.type != FrameType::kPushPull) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(chunk.Name(),
                                                 ": got ",
                                                 frame.payload_bytes,
                                                 " bytes in a frame of type ",
                                                 static_cast<int>(frame.type),
                                                 ", expected up to ",
                                                 RowsPerChunkMax(dim),
                                                 " rows of ",
                                                 one));
}

absl::Status CheckRowKeys(const Chunk& chunk, FrameType type, std::span<const std::byte> payload) {
  if (!HoldsRows(chunk)) return absl::OkStatus();
  const RowTable& rows = *chunk.state().rows();
  absl::StatusOr<std::span<const uint64_t>> keys;
  if (type == FrameType::kPull) {
    keys = ParseRowKeys(payload);
  } else {
    const absl::StatusOr<SparseRows> pushed = ParseSparseRows(payload, rows.dim());
    keys = pushed.ok() ? absl::StatusOr<std::span<const uint64_t>>(pushed->keys) : pushed.status();
  }
  const absl::Status checked = keys.ok() ? rows.CheckKeys(*keys) : keys.status();
  if (checked.ok()) return checked;
  return absl::Status(checked.code(), absl::StrCat(chunk.Name(), ": ", checked.message()));
}

absl::StatusOr<HostBuffer> TakeBuffer(const Chunk& chunk, uint64_t num_bytes, BufferPool& pool) {
  return HoldsRows(chunk) ? HostBuffer::Uninitialized(num_bytes) : pool.Take(num_bytes);
}

void ReturnBuffer(const Chunk& chunk, HostBuffer buffer, BufferPool& pool) {
  if (!HoldsRows(chunk)) pool.Return(std::move(buffer));
}

absl::StatusOr<std::shared_ptr<const HostBuffer>> TakeRowKeys(const Chunk& chunk,
                                                              Reception reception,
                                                              const FrameHeader& pull) {
  if (!HoldsRows(chunk)) return nullptr;
  if (reception.buffer.num_bytes() != pull.payload_bytes)
    return absl::UnavailableError(absl::StrCat(chunk.Name(), ": no memory for the keys of a pull"));
  PUSHPULL_RETURN_IF_ERROR(CheckRowKeys(chunk, FrameType::kPull, reception.buffer.bytes()));
  return std::make_shared<const HostBuffer>(std::move(reception.buffer));
}

absl::StatusOr<Payload> GatherRows(const Chunk& chunk, const Waiter& waiter) {
  if (waiter.row_keys == nullptr) return Payload{};
  const RowTable& rows = *chunk.state().rows();
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<const uint64_t> keys,
                            ParseRowKeys(waiter.row_keys->bytes()));
  absl::StatusOr<HostBuffer> memory =
      HostBuffer::Uninitialized(keys.size() * rows.dim() * sizeof(float));
  if (!memory.ok()) return absl::UnavailableError(memory.status().message());
  rows.Gather(keys, memory->floats());
  const auto gathered = std::make_shared<const HostBuffer>(*std::move(memory));
  return Payload{gathered->bytes(), gathered};
}

}  // namespace pushpull
