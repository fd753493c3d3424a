// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/staging_ring.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr std::chrono::seconds kEndOfCopies{30};

}  // namespace

absl::StatusOr<StagingRing> StagingRing::Create(DeviceStream& stream,
                                                const StagingOptions& options) {
  if (options.piece_bytes == 0 || options.num_pieces == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("staging needs a piece of a byte at least: there are ",
                     options.num_pieces,
                     " pieces of ",
                     options.piece_bytes,
                     " bytes"));
  }
  std::vector<Piece> pieces(options.num_pieces);
  for (Piece& piece : pieces) {
    PUSHPULL_ASSIGN_OR_RETURN(piece.memory,
                              PinnedBuffer::Create(stream.device(), options.piece_bytes));
  }
  return StagingRing(stream, std::move(pieces));
}

StagingRing::~StagingRing() {
  // Pinned memory must not be freed during a copy. A stream's failed work is over.
  for (const Piece& piece : pieces_) {
    const absl::Status done = piece.copied.Wait(Deadline::After(kEndOfCopies));
    PUSHPULL_CHECK(!absl::IsDeadlineExceeded(done));
  }
}

StagingRing::Piece& StagingRing::NextPiece() {
  Piece& piece = pieces_[next_];
  next_ = (next_ + 1) % pieces_.size();
  return piece;
}

absl::Status StagingRing::ToDevice(DeviceSpan<std::byte> to,
                                   std::span<const std::byte> from,
                                   Deadline deadline) {
  PUSHPULL_CHECK(to.size() == from.size());
  const size_t piece_bytes = pieces_.front().memory.bytes().size();
  for (size_t at = 0; at < from.size(); at += piece_bytes) {
    const size_t num_bytes = std::min(piece_bytes, from.size() - at);
    Piece& piece = NextPiece();
    PUSHPULL_RETURN_IF_ERROR(piece.copied.Wait(deadline));
    const std::span<std::byte> staged = piece.memory.bytes().first(num_bytes);
    std::memcpy(staged.data(), from.data() + at, num_bytes);
    PUSHPULL_RETURN_IF_ERROR(stream_->CopyToDevice(to.subspan(at, num_bytes), staged));
    PUSHPULL_ASSIGN_OR_RETURN(piece.copied, stream_->Mark());
  }
  return absl::OkStatus();
}

absl::Status StagingRing::ToHost(std::span<std::byte> to,
                                 DeviceSpan<const std::byte> from,
                                 Deadline deadline) {
  PUSHPULL_CHECK(to.size() == from.size());
  const size_t piece_bytes = pieces_.front().memory.bytes().size();
  const size_t num_copies = (to.size() + piece_bytes - 1) / piece_bytes;
  const size_t first = next_;
  // Copy i starts as soon as copy i - pieces_.size() has been taken out of its piece.
  for (size_t i = 0; i < num_copies + pieces_.size(); ++i) {
    if (i >= pieces_.size() && i - pieces_.size() < num_copies) {
      const size_t done = i - pieces_.size();
      const size_t at = done * piece_bytes;
      const Piece& piece = pieces_[(first + done) % pieces_.size()];
      PUSHPULL_RETURN_IF_ERROR(piece.copied.Wait(deadline));
      std::memcpy(
          to.data() + at, piece.memory.bytes().data(), std::min(piece_bytes, to.size() - at));
    }
    if (i >= num_copies) continue;
    const size_t at = i * piece_bytes;
    const size_t num_bytes = std::min(piece_bytes, to.size() - at);
    Piece& piece = NextPiece();
    PUSHPULL_RETURN_IF_ERROR(piece.copied.Wait(deadline));
    PUSHPULL_RETURN_IF_ERROR(
        stream_->CopyToHost(piece.memory.bytes().first(num_bytes), from.subspan(at, num_bytes)));
    PUSHPULL_ASSIGN_OR_RETURN(piece.copied, stream_->Mark());
  }
  return absl::OkStatus();
}

}  // namespace pushpull
