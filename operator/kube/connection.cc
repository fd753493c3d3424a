// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using pushpull::FileDescriptor;
using pushpull::StatusFromErrno;

absl::Status Await(int fd, short events, absl::string_view what, const CallLimit& limit) {
  std::array<pollfd, 2> waiting{pollfd{.fd = fd, .events = events, .revents = 0},
                                pollfd{.fd = -1, .events = POLLIN, .revents = 0}};
  if (limit.cancellation != nullptr) waiting[1].fd = limit.cancellation->fd();
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.deadline.remaining());
    const auto longest = std::chrono::milliseconds(std::chrono::hours(1));
    const int ready =
        poll(waiting.data(), waiting.size(), static_cast<int>(std::min(left, longest).count()));
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll");
    if (waiting[1].revents != 0) return absl::CancelledError(absl::StrCat(what, ": cancelled"));
    if (ready > 0) return absl::OkStatus();
    if (limit.deadline.has_passed()) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": no answer within the deadline"));
    }
  }
}

// The library's own BIO over sockets raises SIGPIPE when the peer is gone.
int SocketOf(BIO* bio) {
  return static_cast<const Connection*>(BIO_get_data(bio))->fd();
}

int SendBytes(BIO* bio, const char* data, int size) {
  const ssize_t sent = send(SocketOf(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReceiveBytes(BIO* bio, char* out, int size) {
  const ssize_t received = recv(SocketOf(bio), out, static_cast<size_t>(size), 0);
  BIO_clear_retry_flags(bio);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

const BIO_METHOD* QuietSocket() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
    BIO_meth_set_write(made, SendBytes);
    BIO_meth_set_read(made, ReceiveBytes);
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    BIO_meth_set_create(made, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method;
}

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));  // a kernel without it is slower to notice
}

// A server that vanished without a word (its machine lost power) ends a watch after about 40 s.
void NoticeDeadPeers(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

absl::StatusOr<FileDescriptor> Connect(const addrinfo& peer,
                                       const std::string& what,
                                       const CallLimit& limit) {
  FileDescriptor fd(socket(peer.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return StatusFromErrno(errno, what);
  NoticeDeadPeers(fd.get());
  if (connect(fd.get(), peer.ai_addr, peer.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return StatusFromErrno(errno, what);
  PUSHPULL_RETURN_IF_ERROR(Await(fd.get(), POLLOUT, what, limit));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return StatusFromErrno(error, what);
  return fd;
}

bool IsFinal(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

absl::StatusOr<FileDescriptor> ConnectToAny(const ServerAddress& address, const CallLimit& limit) {
  const std::string what =
      absl::StrCat("connect to ", ToString(pushpull::HostPort{address.host, address.port}));
  const addrinfo hints{.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrCat(what, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  absl::Status status = absl::UnavailableError(absl::StrCat(what, ": the name has no address"));
  for (const addrinfo* peer = addresses.get(); peer != nullptr; peer = peer->ai_next) {
    absl::StatusOr<FileDescriptor> fd = Connect(*peer, what, limit);
    if (fd.ok() || IsFinal(fd.status())) return fd;
    status = fd.status();
  }
  return status;
}

bool IsNumeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

absl::Status ExpectName(const std::string& name, SSL* session) {
  X509_VERIFY_PARAM* expected = SSL_get0_param(session);
  const bool is_set = IsNumeric(name) ? X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str()) == 1
                                      : SSL_set1_host(session, name.c_str()) == 1 &&
                                            SSL_set_tlsext_host_name(session, name.c_str()) == 1;
  ERR_clear_error();
  if (is_set) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" cannot be a server's name"));
}

}  // namespace

void Connection::Free::operator()(SSL* session) const {
  SSL_free(session);
}

Connection::Connection(FileDescriptor socket, std::shared_ptr<const TlsContext> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)) {}

Connection::~Connection() {
  // A farewell is polite, nobody waits for the answer.
  if (session_ != nullptr && SSL_is_init_finished(session_.get())) SSL_shutdown(session_.get());
  ERR_clear_error();
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ServerAddress& address,
                                                             std::shared_ptr<const TlsContext> tls,
                                                             const CallLimit& limit) {
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor fd, ConnectToAny(address, limit));
  // Not make_unique: the constructor is private.
  std::unique_ptr<Connection> connection(new Connection(std::move(fd), std::move(tls)));
  if (address.uses_tls) PUSHPULL_RETURN_IF_ERROR(connection->Handshake(address, limit));
  return connection;
}

absl::Status Connection::Handshake(const ServerAddress& address, const CallLimit& limit) {
  session_.reset(SSL_new(tls_->get()));
  BIO* bio = BIO_new(QuietSocket());
  if (session_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return absl::ResourceExhaustedError("cannot make a TLS session");
  }
  BIO_set_data(bio, this);
  SSL_set_bio(session_.get(), bio, bio);  // takes the BIO
  // The server may not ask for a new handshake in the midst of a request.
  SSL_set_options(session_.get(), SSL_OP_NO_RENEGOTIATION);
  const std::string& name = address.tls_name.empty() ? address.host : address.tls_name;
  PUSHPULL_RETURN_IF_ERROR(ExpectName(name, session_.get()));
  const std::string what = absl::StrCat("TLS handshake with ", name, ":", address.port);
  for (;;) {
    ERR_clear_error();
    const int result = SSL_connect(session_.get());
    if (result == 1) return absl::OkStatus();
    PUSHPULL_RETURN_IF_ERROR(AwaitTls(result, what, limit));
  }
}

absl::Status Connection::AwaitTls(int result, absl::string_view what, const CallLimit& limit) {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Await(socket_.get(), POLLIN, what, limit);
    case SSL_ERROR_WANT_WRITE:
      return Await(socket_.get(), POLLOUT, what, limit);
    default:
      break;
  }
  std::string text(what);
  if (const long verdict = SSL_get_verify_result(session_.get()); verdict != X509_V_OK) {
    absl::StrAppend(&text, ": the server's certificate: ", X509_verify_cert_error_string(verdict));
  } else if (const unsigned long error = ERR_peek_error(); error != 0) {
    const char* reason = ERR_reason_error_string(error);
    absl::StrAppend(&text, ": ", reason == nullptr ? "TLS error" : reason);
  } else {
    absl::StrAppend(&text, ": the peer has closed the connection");
  }
  ERR_clear_error();
  return absl::UnavailableError(text);
}

absl::StatusOr<size_t> Connection::Read(char* out, size_t bytes_max, const CallLimit& limit) {
  for (;;) {
    if (session_ != nullptr) {
      ERR_clear_error();
      size_t count = 0;
      const int result = SSL_read_ex(session_.get(), out, bytes_max, &count);
      if (result == 1) return count;
      if (SSL_get_error(session_.get(), result) == SSL_ERROR_ZERO_RETURN) return size_t{0};
      PUSHPULL_RETURN_IF_ERROR(AwaitTls(result, "read from the API server", limit));
      continue;
    }
    const ssize_t count = recv(socket_.get(), out, bytes_max, 0);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EAGAIN && errno != EINTR)
      return StatusFromErrno(errno, "read from the API server");
    PUSHPULL_RETURN_IF_ERROR(Await(socket_.get(), POLLIN, "read from the API server", limit));
  }
}

absl::StatusOr<size_t> Connection::Write(absl::string_view bytes, const CallLimit& limit) {
  for (;;) {
    if (session_ != nullptr) {
      ERR_clear_error();
      size_t count = 0;
      const int result = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &count);
      if (result == 1) return count;
      PUSHPULL_RETURN_IF_ERROR(AwaitTls(result, "write to the API server", limit));
      continue;
    }
    const ssize_t count = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EAGAIN && errno != EINTR) return StatusFromErrno(errno, "write to the API server");
    PUSHPULL_RETURN_IF_ERROR(Await(socket_.get(), POLLOUT, "write to the API server", limit));
  }
}

bool Connection::is_stale() const {
  // TLS 1.3 sends tickets after the handshake: bytes on the socket that are none of the stream.
  if (session_ != nullptr) {
    char byte = 0;
    ERR_clear_error();
    const int result = SSL_peek(session_.get(), &byte, 1);
    const int error = SSL_get_error(session_.get(), result);
    ERR_clear_error();
    return error != SSL_ERROR_WANT_READ;
  }
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) != 0;
}

}  // namespace pushpull_operator
