// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/wire_values.h"

#include <cstring>
#include <span>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/master_values.h"

namespace pushpull {

uint64_t WireBytes(const Chunk& chunk) {
  return NarrowBytes(chunk.tensor().spec.dtype, chunk.state().num_bytes());
}

absl::StatusOr<HostBuffer> WithMasterValues(const Chunk& chunk, HostBuffer received) {
  const DType dtype = chunk.tensor().spec.dtype;
  if (IsMaster(dtype)) return received;
  const uint64_t master_bytes = chunk.state().num_bytes();
  const uint64_t wire_bytes = WireBytes(chunk);
  const std::span<const std::byte> bytes = received.bytes();
  PUSHPULL_CHECK(bytes.size() >= wire_bytes);
  const std::span<const std::byte> state = bytes.subspan(wire_bytes);
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer master,
                            HostBuffer::Uninitialized(master_bytes + state.size()));
  Widen(dtype, bytes.first(wire_bytes), master.floats().first(master_bytes / sizeof(float)));
  if (!state.empty())
    std::memcpy(master.bytes().subspan(master_bytes).data(), state.data(), state.size());
  return master;
}

absl::StatusOr<WireValues::Rounded> WireValues::Of(const Chunk& chunk) {
  const DType dtype = chunk.tensor().spec.dtype;
  const std::shared_ptr<const HostBuffer> master = chunk.state().value();
  if (IsMaster(dtype) || master == nullptr) return Rounded{master};
  const Step version = chunk.state().version();
  Kept& kept = kept_[chunk.id()];
  if (kept.value != nullptr && kept.version == version && kept.master.lock() == master)
    return Rounded{kept.value};
  // Only this thread adds and drops owners: a single one means that nobody reads the value.
  if (kept.value == nullptr || kept.value.use_count() > 1) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer fresh, HostBuffer::Uninitialized(WireBytes(chunk)));
    kept.value = std::make_shared<HostBuffer>(std::move(fresh));
  }
  kept.master = master;
  kept.version = version;
  const uint64_t overflows = Narrow(dtype, master->floats(), kept.value->bytes());
  const bool had_overflows = std::exchange(kept.has_overflows, overflows > 0);
  return Rounded{kept.value, had_overflows ? 0 : overflows};
}

}  // namespace pushpull
