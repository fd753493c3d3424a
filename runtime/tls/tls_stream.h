// SPDX-License-Identifier: Apache-2.0
//
// TLS over a non-blocking socket. Received bytes are decrypted into the caller's buffers. Sent
// bytes are encrypted into a buffer of a few records before they are written to the socket: OpenSSL
// never has to be offered the same bytes twice (SSL_write's retry rule), and one system call takes
// several records.
//
//   Receive:  socket -> [OpenSSL's records] -> caller's buffers
//   Send:     caller's buffers -> [unsent_: encrypted records] -> socket
//
//   handshake (SSL_do_handshake in both calls) -> established -> failed (failure_, for good)
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

// How many bytes a call on a stream has moved, and what the stream waits for.
struct Transfer {
  enum class Wait { kNothing, kReadable, kWritable };
  size_t num_bytes = 0;
  Wait wait = Wait::kNothing;
};

// Both calls advance the handshake. Errors, after which the stream cannot be used:
//   kUnauthenticated    one end rejects the other's certificate, or the peer has no TLS; the text
//                       says which, and what to compare
//   kUnavailable        the peer has closed the connection, or the socket failed
//   kDataLoss           bytes after the handshake are damaged
//   kResourceExhausted  the peer triggers TLS's own responses and does not read them
//
// Thread-compatible; may move between threads.
class TlsStream {
 public:
  // `socket` is connected and still belongs to the caller.
  TlsStream(std::shared_ptr<const TlsIdentity> identity, TlsSide side, int socket);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Fills `buffers` in order. The wait is kReadable if they could not all be filled.
  absl::StatusOr<Transfer> Receive(std::span<const iovec> buffers);

  // Takes bytes of `buffers` in order, at most about 48 KiB per call. The wait is kReadable during
  // the handshake, kWritable if the socket takes no more.
  absl::StatusOr<Transfer> Send(std::span<const iovec> buffers);

  // The peer's identity, once a byte from it has been received.
  const PeerIdentity& peer() const { return peer_; }

  // Encrypted bytes are waiting for the socket: call Send, without buffers if there is nothing else
  // to send.
  bool has_unsent() const { return unsent_.size() > num_sent_; }
  // Received bytes, or an error, are waiting here; epoll will not report them again: call Receive.
  bool has_read_ahead() const;

 private:
  struct Free {
    void operator()(ssl_st* tls) const;
  };
  struct SocketCalls;
  struct NameCheck;

  // True: the handshake is complete.
  absl::StatusOr<bool> Handshake();
  absl::StatusOr<size_t> ReceiveInto(std::span<std::byte> buffer);
  absl::Status Encrypt(std::span<const iovec> buffers, size_t& num_taken);
  // False: the socket takes no more.
  absl::StatusOr<bool> Flush();
  absl::Status Failure(int result);
  absl::Status LibraryFailure() const;
  absl::Status FailureOfSend(const absl::Status& why);

  static constexpr size_t kRecordBytes = 16 * 1024;

  const std::shared_ptr<const TlsIdentity> identity_;  // outlives tls_
  const int socket_;
  const std::unique_ptr<ssl_st, Free> tls_;
  bool is_established_ = false;
  bool has_received_ = false;
  bool is_drained_ = true;  // OpenSSL has no complete record left
  bool has_ended_ = false;  // the peer will send no more
  int socket_error_ = 0;    // of the last call, an errno
  PeerIdentity peer_ = PeerIdentity::Anybody();
  absl::Status name_refusal_;  // why the peer's names were refused
  absl::Status failure_;       // returned by every call from now on
  std::vector<std::byte> unsent_;
  size_t num_sent_ = 0;  // of unsent_
  std::array<std::byte, kRecordBytes> record_;
};

}  // namespace pushpull
