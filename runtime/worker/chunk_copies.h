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
    bool has_gradient = true;  // somebody had one in the step that made it
  };

  void SetChunks(size_t count) { copies_.resize(count); }

  // The value is now in copy.value. `is_kept`: the program leaves it there.
  void Take(size_t chunk, const Copy& copy, bool is_kept);
  // Something else is, or may be, written to this memory.
  void Invalidate(size_t chunk, std::span<const std::byte> memory);
  // The program may change all of its memory from now on.
  void Clear();

  const std::optional<Copy>& Find(size_t chunk) const { return copies_[chunk]; }

 private:
  std::vector<std::optional<Copy>> copies_;
};

}  // namespace pushpull
