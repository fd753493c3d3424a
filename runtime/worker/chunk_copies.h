// SPDX-License-Identifier: Apache-2.0
//
// Where in the program's memory a whole value of each chunk is, and of which version: the job's
// copy of last resort (decisions/0020). include/pushpull/job.h says what the program promises.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// Thread-compatible. Chunks are named by their position.
class ChunkCopies {
 public:
  struct Copy {
    std::span<const std::byte> value;
    Step version;
  };

  void SetChunks(size_t count) { copies_.resize(count); }

  // The value of `version` has come to `memory`. `is_kept`: the program leaves it there.
  void Take(size_t chunk, std::span<const std::byte> memory, Step version, bool is_kept);
  // Something else is, or may be, written to this memory.
  void Spoil(size_t chunk, std::span<const std::byte> memory);
  // The program may do what it likes with its memory from now on.
  void Clear();

  const std::optional<Copy>& Find(size_t chunk) const { return copies_[chunk]; }

 private:
  std::vector<std::optional<Copy>> copies_;
};

}  // namespace pushpull
