// SPDX-License-Identifier: Apache-2.0
//
// Between a chunk's master values and what travels from and to workers, for tensors of other types
// than float32 (docs/decisions/0082-half-precision-tensors.md).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/server/chunk.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Bytes of a dense chunk's gradient or value on its way.
uint64_t WireBytes(const Chunk& chunk);

// An initial value or a copy as a worker sends it, perhaps with the optimizer's state behind it,
// with master values in place of the tensor's. kResourceExhausted: no memory for that.
absl::StatusOr<HostBuffer> WithMasterValues(const Chunk& chunk, HostBuffer received);

// The chunks' values as workers receive them, rounded once for all workers. Thread-confined to its
// lane.
class WireValues {
 public:
  struct Rounded {
    std::shared_ptr<const HostBuffer> value;
    // Finite values that have become infinite, where none of the version before had: to be logged.
    uint64_t first_overflows = 0;
  };

  // Of the chunk's current version, unchanged for as long as the pointer lives; that of a tensor of
  // float32 is the value itself. kResourceExhausted: no memory for it.
  absl::StatusOr<Rounded> Of(const Chunk& chunk);

  // The chunk is published elsewhere from now on: frees the memory of its last value.
  void Drop(const Chunk& chunk) { kept_.erase(chunk.id()); }

 private:
  struct Kept {
    std::weak_ptr<const HostBuffer> master;  // a value that is written in place has a new version
    Step version;
    std::shared_ptr<HostBuffer> value;
    bool has_overflows = false;
  };
  absl::flat_hash_map<ChunkId, Kept> kept_;
};

}  // namespace pushpull
