// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection to the API server, with TLS where the address asks for it. Every call ends at
// its deadline or when it is cancelled, whatever the peer does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/cancellation.h"
#include "operator/kube/tls_context.h"
#include "runtime/base/deadline.h"
#include "runtime/base/file_descriptor.h"

struct ssl_st;  // SSL

namespace pushpull_operator {

struct ServerAddress {
  std::string host;  // a name or an address
  uint16_t port = 0;
  bool uses_tls = true;
  std::string tls_name;  // the name in the server's certificate where it is not the host
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

// Where a call ends besides its own result.
struct CallLimit {
  pushpull::Deadline deadline;
  const Cancellation* cancellation = nullptr;  // may be null
};

// Thread-compatible.
class Connection {
 public:
  // Tries each address of the host. A look-up of a name blocks for as long as the system's resolver
  // takes, which the deadline does not bound; in a cluster the host is an address. `tls` may be
  // null where the address does not use TLS.
  //
  // kUnavailable       nobody listens, or the server's certificate is not the expected one.
  // kDeadlineExceeded, kCancelled
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ServerAddress& address,
                                                          std::shared_ptr<const TlsContext> tls,
                                                          const CallLimit& limit);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // At least one byte; 0 when the peer has ended the connection.
  absl::StatusOr<size_t> Read(char* out, size_t bytes_max, const CallLimit& limit);
  // At least one byte.
  absl::StatusOr<size_t> Write(absl::string_view bytes, const CallLimit& limit);

  // Whether the peer has closed it, or sent what nobody asked for, so that no request may follow.
  bool is_stale() const;
  int fd() const { return socket_.get(); }
  const TlsContext* tls() const { return tls_.get(); }

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };
  Connection(pushpull::FileDescriptor socket, std::shared_ptr<const TlsContext> tls);

  absl::Status Handshake(const ServerAddress& address, const CallLimit& limit);
  // What a call of the TLS library wants before it can go on; an error when it has failed.
  absl::Status AwaitTls(int result, absl::string_view what, const CallLimit& limit);

  pushpull::FileDescriptor socket_;
  std::shared_ptr<const TlsContext> tls_;
  std::unique_ptr<ssl_st, Free> session_;
};

}  // namespace pushpull_operator
