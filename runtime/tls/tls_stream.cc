// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Encrypted before writing to the socket: three records per system call, which the kernel copies
// while they are in the nearest cache (docs/decisions/0035-tls-goodput.md).
constexpr size_t kUnsentAim = 48 * 1024;
// Encrypt stops at kUnsentAim, so only TLS's own responses (to key updates) can exceed this: the
// peer requests them and does not read.
constexpr size_t kUnsentMax = 1024 * 1024;

// Splits several buffers into records, without a copy if one buffer has a full record.
class Records {
 public:
  explicit Records(std::span<const iovec> buffers) : rest_(buffers) { SkipEmpty(); }

  bool empty() const { return rest_.empty(); }

  // The next record, of at most room.size() bytes; copied to `room` if it spans buffers.
  std::span<const std::byte> Next(std::span<std::byte> room) const {
    const std::span<const std::byte> first = Bytes(rest_.front()).subspan(offset_);
    if (first.size() >= room.size() || rest_.size() == 1)
      return first.first(std::min(first.size(), room.size()));
    size_t num_bytes = 0;
    size_t skip = offset_;
    for (const iovec& buffer : rest_) {
      const std::span<const std::byte> part = Bytes(buffer).subspan(std::exchange(skip, 0));
      const size_t taken = std::min(part.size(), room.size() - num_bytes);
      if (taken > 0) std::memcpy(room.data() + num_bytes, part.data(), taken);
      num_bytes += taken;
    }
    return room.first(num_bytes);
  }

  void Advance(size_t num_bytes) {
    offset_ += num_bytes;
    SkipEmpty();
  }

 private:
  static std::span<const std::byte> Bytes(const iovec& buffer) {
    return {static_cast<const std::byte*>(buffer.iov_base), buffer.iov_len};
  }
  void SkipEmpty() {
    while (!rest_.empty() && offset_ >= rest_.front().iov_len) {
      offset_ -= rest_.front().iov_len;
      rest_ = rest_.subspan(1);
    }
  }

  std::span<const iovec> rest_;
  size_t offset_ = 0;  // into the first
};

constexpr char kCompare[] =
    "both sides' certificates must be of one job: compare ca.crt, tls.crt and their expiry in the "
    "folders of PUSHPULL_TLS_DIR";

// Whether the peer's alert says that it rejects this side's certificate.
bool IsAboutCertificate(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

}  // namespace

// OpenSSL's view of the socket: reads come from it, writes are appended to unsent_.
struct TlsStream::SocketCalls {
  static TlsStream& Of(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int Read(BIO* bio, char* data, int size) {
    TlsStream& stream = Of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = 0;
    do {
      got = recv(stream.socket_, data, static_cast<size_t>(size), 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0) return static_cast<int>(got);
    if (got == 0) {
      stream.has_ended_ = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      BIO_set_retry_read(bio);
    } else {
      stream.socket_error_ = errno;
    }
    return -1;
  }

  static int Write(BIO* bio, const char* data, int size) {
    TlsStream& stream = Of(bio);
    BIO_clear_retry_flags(bio);
    if (stream.unsent_.size() - stream.num_sent_ > kUnsentMax) {
      stream.failure_ = absl::ResourceExhaustedError("has stopped reading");
      return -1;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    stream.unsent_.insert(stream.unsent_.end(), bytes, bytes + size);
    return size;
  }

  static long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* Method() {
    static const BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
      PUSHPULL_CHECK(made != nullptr);
      BIO_meth_set_read(made, &Read);
      BIO_meth_set_write(made, &Write);
      BIO_meth_set_ctrl(made, &Control);
      return made;
    }();
    return method;
  }
};

// OpenSSL's verification callback, called for each certificate of the peer's chain, the peer's own
// last.
struct TlsStream::NameCheck {
  static int Verify(int is_valid, X509_STORE_CTX* check) {
    if (is_valid != 1 || X509_STORE_CTX_get_error_depth(check) != 0) return is_valid;
    auto* tls =
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsStream& stream = *static_cast<TlsStream*>(SSL_get_app_data(tls));
    absl::StatusOr<PeerIdentity> peer =
        AdmitPeer(DnsNamesOf(*X509_STORE_CTX_get_current_cert(check)), stream.identity_->own());
    if (peer.ok()) {
      stream.peer_ = *std::move(peer);
      return 1;
    }
    stream.name_refusal_ = peer.status();
    X509_STORE_CTX_set_error(check, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
  }
};

void TlsStream::Free::operator()(ssl_st* tls) const {
  SSL_free(tls);
}

TlsStream::TlsStream(std::shared_ptr<const TlsIdentity> identity, TlsSide side, int socket)
    : identity_(std::move(identity)), socket_(socket), tls_(SSL_new(identity_->context())) {
  BIO* bio = BIO_new(SocketCalls::Method());
  PUSHPULL_CHECK(tls_ != nullptr && bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls_.get(), bio, bio);  // takes ownership
  SSL_set_app_data(tls_.get(), this);
  SSL_set_verify(tls_.get(), SSL_get_verify_mode(tls_.get()), &NameCheck::Verify);
  if (side == TlsSide::kConnecting) {
    SSL_set_connect_state(tls_.get());
  } else {
    SSL_set_accept_state(tls_.get());
  }
}

TlsStream::~TlsStream() = default;

bool TlsStream::has_read_ahead() const {
  return !failure_.ok() || (!is_drained_ && SSL_has_pending(tls_.get()) == 1);
}

// ---- receiving ----

absl::StatusOr<Transfer> TlsStream::Receive(std::span<const iovec> buffers) {
  Transfer result;
  for (const iovec& buffer : buffers) {
    std::span<std::byte> room(static_cast<std::byte*>(buffer.iov_base), buffer.iov_len);
    while (!room.empty()) {
      const absl::StatusOr<size_t> got = ReceiveInto(room);
      if (!got.ok()) {
        if (result.num_bytes == 0) return got.status();
        failure_ = got.status();
        return result;
      }
      result.num_bytes += *got;
      room = room.subspan(*got);
      if (*got > 0) continue;
      result.wait = Transfer::Wait::kReadable;
      return result;
    }
  }
  return result;
}

// Zero: nothing has arrived.
absl::StatusOr<size_t> TlsStream::ReceiveInto(std::span<std::byte> buffer) {
  PUSHPULL_RETURN_IF_ERROR(failure_);
  PUSHPULL_ASSIGN_OR_RETURN(const bool is_established, Handshake());
  if (!is_established) return 0;
  ERR_clear_error();
  size_t num_bytes = 0;
  const int result = SSL_read_ex(tls_.get(), buffer.data(), buffer.size(), &num_bytes);
  if (result != 1) PUSHPULL_RETURN_IF_ERROR(Failure(result));
  has_received_ |= num_bytes > 0;
  is_drained_ = num_bytes == 0;
  return num_bytes;
}

// ---- sending ----

absl::StatusOr<Transfer> TlsStream::Send(std::span<const iovec> buffers) {
  PUSHPULL_RETURN_IF_ERROR(failure_);
  Transfer result;
  PUSHPULL_ASSIGN_OR_RETURN(bool is_drained, Flush());
  if (is_drained && !buffers.empty()) {
    PUSHPULL_ASSIGN_OR_RETURN(const bool is_established, Handshake());
    if (is_established) PUSHPULL_RETURN_IF_ERROR(Encrypt(buffers, result.num_bytes));
    if (!is_established) result.wait = Transfer::Wait::kReadable;
    PUSHPULL_ASSIGN_OR_RETURN(is_drained, Flush());
  }
  if (!is_drained) result.wait = Transfer::Wait::kWritable;
  return result;
}

absl::Status TlsStream::Encrypt(std::span<const iovec> buffers, size_t& num_taken) {
  Records records(buffers);
  while (!records.empty() && unsent_.size() < kUnsentAim) {
    const std::span<const std::byte> record = records.Next(record_);
    ERR_clear_error();
    size_t num_bytes = 0;
    const int result = SSL_write_ex(tls_.get(), record.data(), record.size(), &num_bytes);
    if (result != 1) return Failure(result);
    records.Advance(num_bytes);
    num_taken += num_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TlsStream::Flush() {
  while (has_unsent()) {
    const ssize_t sent =
        send(socket_, unsent_.data() + num_sent_, unsent_.size() - num_sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (sent < 0) return FailureOfSend(StatusFromErrno(errno, "send"));
    num_sent_ += static_cast<size_t>(sent);
  }
  unsent_.clear();
  num_sent_ = 0;
  return true;
}

// ---- the handshake, and failures ----

absl::StatusOr<bool> TlsStream::Handshake() {
  if (is_established_) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  is_established_ = result == 1;
  is_drained_ = !is_established_;  // application data may have arrived with the handshake's end
  const absl::Status failure = result == 1 ? absl::OkStatus() : Failure(result);
  // Send the handshake's messages at once, including an alert on failure; if the socket is full,
  // later calls send the rest.
  const absl::StatusOr<bool> flushed = Flush();
  PUSHPULL_RETURN_IF_ERROR(failure);
  PUSHPULL_RETURN_IF_ERROR(flushed.status());
  return is_established_;
}

// Why an OpenSSL call returned `result`; OK if it only waits for the peer. Must follow that call
// directly: SSL_get_error reads the thread's error queue.
absl::Status TlsStream::Failure(int result) {
  const int kind = SSL_get_error(tls_.get(), result);
  if (kind == SSL_ERROR_WANT_READ) return absl::OkStatus();
  if (!failure_.ok()) return failure_;
  if (socket_error_ != 0) {
    failure_ = StatusFromErrno(socket_error_, "receive");
  } else if (kind == SSL_ERROR_ZERO_RETURN || has_ended_) {
    failure_ = absl::UnavailableError(
        has_received_ ? "closed the connection"
        : is_established_
            ? "closed the connection before it sent anything over TLS; it may reject this "
              "side's certificate: see its log"
            : "closed the connection in the TLS handshake; is PUSHPULL_TLS_DIR set there?");
  } else {
    failure_ = LibraryFailure();
  }
  ERR_clear_error();
  return failure_;
}

absl::Status TlsStream::LibraryFailure() const {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const char* const text = ERR_reason_error_string(error);
  const absl::string_view said = text == nullptr ? "unknown" : text;
  if (!name_refusal_.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat("its certificate is rejected: ", name_refusal_.message()));
  }
  const long verdict = SSL_get_verify_result(tls_.get());
  if (verdict != X509_V_OK) {
    return absl::UnauthenticatedError(absl::StrCat(
        "its certificate is rejected (", X509_verify_cert_error_string(verdict), "): ", kCompare));
  }
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return absl::UnauthenticatedError(
        "it presented no certificate: every member and every command needs one of the job, in the "
        "folder of PUSHPULL_TLS_DIR");
  }
  // A reason beyond the offset is an alert from the peer.
  if (reason > SSL_AD_REASON_OFFSET && IsAboutCertificate(reason - SSL_AD_REASON_OFFSET)) {
    return absl::UnauthenticatedError(
        absl::StrCat("it rejects this side's certificate (", said, "): ", kCompare));
  }
  if (!is_established_) {
    return absl::UnauthenticatedError(absl::StrCat(
        "no TLS 1.3 with it (", said, "): is PUSHPULL_TLS_DIR set there, and on both sides?"));
  }
  return absl::DataLossError(absl::StrCat("TLS: ", said));
}

// A peer that rejects the certificate sends an alert and closes. In TLS 1.3 the connecting side has
// finished its handshake by then, and notices only through a failed send: the alert that explains
// it has yet to be read.
absl::Status TlsStream::FailureOfSend(const absl::Status& why) {
  unsent_.clear();
  num_sent_ = 0;
  if (has_received_ || !failure_.ok()) return why;
  std::byte ignored{};
  ERR_clear_error();
  size_t num_bytes = 0;
  const int result = SSL_read_ex(tls_.get(), &ignored, 1, &num_bytes);
  const absl::Status said = result == 1 ? absl::OkStatus() : Failure(result);
  return absl::IsUnauthenticated(said) ? said : why;
}

}  // namespace pushpull
