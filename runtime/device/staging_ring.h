// SPDX-License-Identifier: Apache-2.0
//
// Copies between any memory of the host and a GPU, over a few pinned pieces in turn: the CPU copies
// one piece while the GPU copies the one before. Memory that is pinned already needs no staging
// (DeviceStream::CopyToDevice).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/device/device_buffer.h"
#include "runtime/device/device_stream.h"

namespace pushpull {

struct StagingOptions {
  // Large enough that starting a copy, some microseconds, does not count; small enough that the
  // pieces stay in the CPU's cache.
  size_t piece_bytes = 1 << 20;
  size_t num_pieces = 4;
};

// Holds one stream's copies. A call that fails leaves the destination undefined. Ends when its
// copies are done, and aborts where they are not within half a minute. Thread-compatible.
class StagingRing {
 public:
  // Errors as of PinnedBuffer. The stream must outlive the ring, where it is.
  static absl::StatusOr<StagingRing> Create(DeviceStream& stream, const StagingOptions& options);

  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  StagingRing(StagingRing&&) = default;
  StagingRing& operator=(StagingRing&&) = delete;
  ~StagingRing();

  // Returns when `from` has been read, not yet when it is on the GPU: what is put on the stream
  // afterwards sees it. kDeadlineExceeded and other errors as of Completion::Wait.
  absl::Status ToDevice(DeviceSpan<std::byte> to,
                        std::span<const std::byte> from,
                        Deadline deadline);
  // Copies what earlier work of the stream has written. Returns when all of it is in `to`.
  absl::Status ToHost(std::span<std::byte> to, DeviceSpan<const std::byte> from, Deadline deadline);

 private:
  struct Piece {
    PinnedBuffer memory;
    Completion copied;
  };

  StagingRing(DeviceStream& stream, std::vector<Piece> pieces)
      : stream_(&stream), pieces_(std::move(pieces)) {}
  Piece& NextPiece();

  DeviceStream* stream_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

}  // namespace pushpull
