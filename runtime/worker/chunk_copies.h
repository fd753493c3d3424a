// SPDX-License-Identifier: Apache-2.0
//
// Where the program's memory holds a complete value of each chunk, and its version: the copy from
// which the job continues if the servers lose theirs (docs/decisions/0020). The program's
// obligations are in pushpull/job.h, TensorRegistration::keeps_value.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// Thread-compatible. Chunks are identified by their position.
class ChunkCopies {
 public:
  struct Copy {
    std::span<const std::byte> value;
    Step version;
  };

  void SetChunks(size_t count) { copies_.resize(count); }

  // The value of `version` is now in `memory`. `is_kept`: the program leaves it there.
  void Take(size_t chunk, std::span<const std::byte> memory, Step version, bool is_kept);
  // Something else is, or may be, written to this memory.
  void Invalidate(size_t chunk, std::span<const std::byte> memory);
  // The program may change all of its memory from now on.
  void Clear();

  const std::optional<Copy>& Find(size_t chunk) const { return copies_[chunk]; }

 private:
  std::vector<std::optional<Copy>> copies_;
};

}  // namespace pushpull
