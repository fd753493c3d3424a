// SPDX-License-Identifier: Apache-2.0
//
// Converts between a chunk's master values and what travels to and from workers, for tensors of
// types other than float32 (docs/decisions/0082-half-precision-tensors.md).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/server/chunk.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Bytes of a dense chunk's gradient or value on the wire.
uint64_t WireBytes(const Chunk& chunk);

// Replaces the values in an initial value or a copy, as a worker sends it, with master values;
// optimizer state may follow them and is kept. kResourceExhausted: no memory.
absl::StatusOr<HostBuffer> WithMasterValues(const Chunk& chunk, HostBuffer received);

// The chunks' values as workers receive them, rounded once for all workers. Thread-confined to its
// lane.
class WireValues {
 public:
  struct Rounded {
    std::shared_ptr<const HostBuffer> value;
    // Finite values that became infinite, to be logged; 0 if the version before had some already.
    uint64_t first_overflows = 0;
  };

  // The chunk's current version, unchanged for as long as the pointer lives; for a float32 tensor,
  // the value itself. kResourceExhausted: no memory for it.
  absl::StatusOr<Rounded> Of(const Chunk& chunk);

  // The chunk is published elsewhere from now on: frees the memory of its last rounded value.
  void Drop(const Chunk& chunk) { kept_.erase(chunk.id()); }

 private:
  struct Kept {
    std::weak_ptr<const HostBuffer> master;  // a value written in place has a new version
    Step version;
    std::shared_ptr<HostBuffer> value;
    bool has_overflows = false;
  };
  absl::flat_hash_map<ChunkId, Kept> kept_;
};

}  // namespace pushpull
