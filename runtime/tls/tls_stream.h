// SPDX-License-Identifier: Apache-2.0
//
// TLS over a socket that does not block. What is received goes from the library into the caller's
// buffers; what is sent is encrypted in advance, some records at a time, so that the bytes of a
// call that was begun never have to be offered a second time and one system call takes many
// records.
//
//   Receive:  socket -> [the library's records] -> caller's buffers
//   Send:     caller's buffers -> [records not sent yet] -> socket
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/tls/tls_identity.h"

struct ssl_st;         // SSL
struct bio_st;         // BIO
struct bio_method_st;  // BIO_METHOD

namespace pushpull {

enum class TlsSide { kConnecting, kAccepting };

// What a call on a stream has moved, and what it waits for.
struct Transfer {
  enum class Wait { kNothing, kReadable, kWritable };
  size_t num_bytes = 0;
  Wait wait = Wait::kNothing;
};

// Both calls carry the handshake on. Errors, after which the stream is of no use:
//   kUnauthenticated  one end does not accept the other's certificate, or the peer has no TLS; the
//                     text says which and what to compare.
//   kUnavailable      the peer has closed the connection, or the socket failed.
//   kDataLoss         what came after the handshake is damaged.
//   kResourceExhausted the peer makes this end answer and does not read.
//
// Thread-compatible; may go from thread to thread.
class TlsStream {
 public:
  // `socket` is connected and stays the caller's.
  TlsStream(std::shared_ptr<const TlsIdentity> identity, TlsSide side, int socket);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Fills `buffers` in order. Waits for kReadable where they could not all be filled.
  absl::StatusOr<Transfer> Receive(std::span<const iovec> buffers);

  // Takes bytes of `buffers` in order, some 48 KiB a call at most. Waits for kReadable during the
  // handshake, for kWritable where the socket takes no more.
  absl::StatusOr<Transfer> Send(std::span<const iovec> buffers);

  // Bytes were taken that the socket has not got yet: Send is to be called, also with nothing.
  bool has_unsent() const { return unsent_.size() > num_sent_; }
  // Bytes were received that the socket will not tell of any more: Receive is to be called.
  bool has_read_ahead() const;

 private:
  struct Free {
    void operator()(ssl_st* tls) const;
  };
  struct SocketCalls;

  absl::StatusOr<bool> Shake();
  absl::StatusOr<size_t> ReceiveInto(std::span<std::byte> buffer);
  absl::Status Encrypt(std::span<const iovec> buffers, size_t& num_taken);
  // False: the socket takes no more.
  absl::StatusOr<bool> Flush();
  absl::Status Failure(int result);
  absl::Status LibraryFailure() const;
  absl::Status LastWords(const absl::Status& why);

  static constexpr size_t kRecordBytes = 16 * 1024;

  const std::shared_ptr<const TlsIdentity> identity_;  // outlives tls_
  const int socket_;
  const std::unique_ptr<ssl_st, Free> tls_;
  bool is_established_ = false;
  bool has_received_ = false;
  bool is_drained_ = true;  // the library has no whole record any more
  bool has_ended_ = false;  // the peer sends no more
  int socket_error_ = 0;    // of the last call, an errno
  absl::Status failure_;    // to be told with the next call
  std::vector<std::byte> unsent_;
  size_t num_sent_ = 0;  // of unsent_
  std::array<std::byte, kRecordBytes> record_;
};

}  // namespace pushpull
