// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/state_rows.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

ChunkPart PartOf(const ClientChunk& chunk) {
  // The state is float32, whatever the values are.
  const uint64_t one = DTypeBytes(chunk.dtype);
  return {.tensor_bytes = chunk.tensor_bytes / one * sizeof(float),
          .offset = chunk.offset / one * sizeof(float),
          .bytes = chunk.bytes / one * sizeof(float)};
}

}  // namespace

uint64_t StateBytesOf(const ChunkPart& part, uint64_t state_bytes) {
  return state_bytes / part.tensor_bytes * part.bytes;
}

void GatherState(const ChunkPart& part,
                 std::span<const std::byte> tensor,
                 std::span<std::byte> chunk) {
  const uint64_t rows = tensor.size() / part.tensor_bytes;
  for (uint64_t row = 0; row < rows; ++row) {
    std::memcpy(chunk.subspan(row * part.bytes).data(),
                tensor.subspan(row * part.tensor_bytes + part.offset).data(),
                part.bytes);
  }
}

void ScatterState(const ChunkPart& part,
                  std::span<const std::byte> chunk,
                  std::span<std::byte> tensor) {
  const uint64_t rows = tensor.size() / part.tensor_bytes;
  for (uint64_t row = 0; row < rows; ++row) {
    std::memcpy(tensor.subspan(row * part.tensor_bytes + part.offset).data(),
                chunk.subspan(row * part.bytes).data(),
                part.bytes);
  }
}

absl::Status AddState(const TensorRequest& request, const ClientChunk& chunk, ChunkRequest& to) {
  const ChunkPart part = PartOf(chunk);
  if (!request.initial_state.empty()) {
    const uint64_t num_bytes = chunk.bytes + StateBytesOf(part, request.initial_state.size());
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer joined, HostBuffer::Uninitialized(num_bytes));
    absl::c_copy(to.source, joined.bytes().begin());
    GatherState(part, request.initial_state, joined.bytes().subspan(chunk.bytes));
    to.encoded.bytes = std::make_shared<const HostBuffer>(std::move(joined));
    to.base_version = Step{request.updates};
  }
  if (!request.state_target.empty()) {
    const uint64_t num_bytes = StateBytesOf(part, request.state_target.size());
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer state, HostBuffer::Uninitialized(num_bytes));
    to.state = std::make_shared<HostBuffer>(std::move(state));
    to.target = to.state->bytes();
    to.state_target = request.state_target;
  }
  return absl::OkStatus();
}

void StoreState(const ClientChunk& chunk,
                const ChunkRequest& request,
                std::span<const std::byte> payload) {
  if (payload.data() != request.target.data()) absl::c_copy(payload, request.target.begin());
  ScatterState(PartOf(chunk), request.target, request.state_target);
}

}  // namespace pushpull
