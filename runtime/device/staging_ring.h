// SPDX-License-Identifier: Apache-2.0
//
// Copies between any host memory and a GPU, through a few pinned pieces in turn: the CPU copies one
// piece while the GPU copies the previous one. Memory that is already pinned needs no staging
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
  // Large enough that the start of a copy, a few microseconds, does not matter; small enough that
  // the pieces stay in the CPU's cache.
  size_t piece_bytes = 1 << 20;
  size_t num_pieces = 4;
};

// Makes one stream's copies. A call that fails leaves the destination undefined. The destructor
// waits for its copies, and aborts the process if they take more than half a minute.
// Thread-compatible.
class StagingRing {
 public:
  // Errors as for PinnedBuffer. The stream must outlive the ring, and must not be moved.
  static absl::StatusOr<StagingRing> Create(DeviceStream& stream, const StagingOptions& options);

  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  StagingRing(StagingRing&&) = default;
  StagingRing& operator=(StagingRing&&) = delete;
  ~StagingRing();

  // Returns once `from` has been read, which may be before it is on the GPU; work put on the stream
  // afterwards sees it. kDeadlineExceeded and other errors as for Completion::Wait.
  absl::Status ToDevice(DeviceSpan<std::byte> to,
                        std::span<const std::byte> from,
                        Deadline deadline);
  // Copies what earlier work on the stream has written. Returns once all of it is in `to`.
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
