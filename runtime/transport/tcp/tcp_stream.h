// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one connected socket, plain or over TLS.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/tls/tls_stream.h"

namespace pushpull {

// Movable; closes its socket in the destructor. Thread-compatible.
class TcpStream {
 public:
  TcpStream() = default;
  // `socket` is connected and non-blocking. Without `identity` the bytes are sent in plain text.
  TcpStream(FileDescriptor socket, std::shared_ptr<const TlsIdentity> identity, TlsSide side);

  bool is_open() const { return socket_.is_open(); }
  int socket() const { return socket_.get(); }
  void Close();
  // Gives the socket away; only for a plain-text stream. Nothing may be called afterwards.
  FileDescriptor Release() { return std::move(socket_); }

  // Fills `buffers` in order with what has arrived. The wait is kReadable if nothing more is
  // available for now. kUnavailable: the peer has closed, or the connection is broken; over TLS
  // also the errors of TlsStream.
  absl::StatusOr<Transfer> Receive(std::span<const iovec> buffers) {
    return tls_ == nullptr ? ReceivePlain(buffers) : tls_->Receive(buffers);
  }
  // Writes bytes of `buffers` in order, as many as fit. Errors as for Receive.
  absl::StatusOr<Transfer> Send(std::span<const iovec> buffers) {
    return tls_ == nullptr ? SendPlain(buffers) : tls_->Send(buffers);
  }

  // The peer's identity, once a byte from it was received.
  PeerIdentity peer() const { return tls_ == nullptr ? PeerIdentity::Anybody() : tls_->peer(); }

  // Over TLS there may be bytes that Send has taken but the socket has not, and received bytes that
  // epoll will not report again.
  bool is_encrypted() const { return tls_ != nullptr; }
  bool has_unsent() const { return tls_ != nullptr && tls_->has_unsent(); }
  bool has_read_ahead() const { return tls_ != nullptr && tls_->has_read_ahead(); }

 private:
  absl::StatusOr<Transfer> ReceivePlain(std::span<const iovec> buffers);
  absl::StatusOr<Transfer> SendPlain(std::span<const iovec> buffers);

  FileDescriptor socket_;
  std::unique_ptr<TlsStream> tls_;
};

}  // namespace pushpull
