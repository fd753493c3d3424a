// SPDX-License-Identifier: Apache-2.0
//
// A link over a TCP connection, in plain text or over TLS: the bytes of the messages and nothing
// else. Those of a message that is reduced pass through a buffer that stays in the cache, those of
// one that is copied go directly to their place. The buffer begins at a page boundary: the kernel
// copies with one string instruction, which takes up to three times as long to the addresses that
// malloc returns for large blocks, 16 bytes past a page boundary (AMD EPYC, Linux 6.18: 0.5 s per
// gigabyte instead of 0.15).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/collective/peer_link.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/tcp/tcp_stream.h"

namespace pushpull {

class TcpLink final : public PeerLink {
 public:
  // The stream's handshake, if it has one, is complete.
  static absl::StatusOr<std::unique_ptr<PeerLink>> Make(TcpStream stream);

  absl::StatusOr<size_t> Send(std::span<const std::byte> bytes) override;
  void EndSent() override {}
  absl::Status Flush() override;
  bool has_unsent() const override { return !unsent_.empty() || stream_.has_unsent(); }

  absl::StatusOr<std::span<const std::byte>> Peek(size_t least, size_t most) override;
  void Consume(size_t num_bytes) override { staged_begin_ += num_bytes; }
  absl::StatusOr<size_t> Receive(std::span<std::byte> into) override;
  void EndReceived() override { CompactStaged(); }

  void Arm(LinkWants /*wants*/) override {}
  void Disarm() override {}
  pollfd WaitFor(LinkWants wants) const override;
  void OnReady(short events) override;
  bool is_cheap_to_try() const override { return false; }

 private:
  // Headers and small messages are gathered up to this size, so that they share a system call.
  static constexpr size_t kGatheredBytes = 4096;
  static constexpr size_t kStagedBytes = 128 * 1024;

  TcpLink(TcpStream stream, HostBuffer staged);

  std::span<std::byte> Staged() {
    return staged_.bytes().subspan(staged_begin_, staged_end_ - staged_begin_);
  }
  // Moves the staged bytes to the front, where they are aligned.
  void CompactStaged();
  // Writes what is gathered, then `bytes`; returns how many of the latter.
  absl::StatusOr<size_t> Write(std::span<const std::byte> bytes);
  absl::StatusOr<size_t> Read(std::span<std::byte> into);

  TcpStream stream_;
  std::vector<std::byte> unsent_;
  HostBuffer staged_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  // When false, a try is futile until poll reports readiness.
  bool can_read_ = true;
  bool can_write_ = true;
};

}  // namespace pushpull
