// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 requests to one API server, over libcurl; only http_exchange.cc uses the library
// (docs/decisions/0046-http-client-of-the-operator.md). Every exchange ends at its deadline or when
// it is cancelled, whatever the peer does. No redirects, no proxies from the environment.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

#include "operator/kube/cancellation.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

struct ServerAddress {
  std::string host;  // a name or an address
  uint16_t port = 0;
  bool uses_tls = true;
  std::string tls_name;  // the name in the server's certificate; empty: the host
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

enum class ServerCheck { kVerify, kSkip };

// PEM text, from files or from inside a kubeconfig.
struct TlsMaterial {
  std::string authorities;  // empty: those of the system
  std::string certificate;  // with its chain; empty: none
  std::string private_key;
  ServerCheck check = ServerCheck::kVerify;
  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

struct RequestAuth {
  // Null without TLS. Compared by address: connections made with another object are not reused.
  std::shared_ptr<const TlsMaterial> tls;
  std::string token;  // bearer token; empty: none
};

struct HttpRequest {
  std::string method;
  std::string target;  // percent-encoded, with its query
  std::string accept = "application/json";
  std::string content_type;
  std::string body;
};

struct HttpResponse {
  // Not OK: no response, or an incomplete one; then, of the other fields, only was_sent is valid.
  //
  //   kUnavailable        no connection, untrusted server certificate, or the connection broke
  //   kDeadlineExceeded   the deadline passed
  //   kCancelled          the cancellation was triggered
  //   kResourceExhausted  the response is larger than the client's limit or kHeadBytesMax
  //   kInvalidArgument    the address or the TLS material cannot be used
  //   else                the error of the sink
  absl::Status status;
  bool was_sent = false;  // whether a byte of the request may have reached the server
  int code = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;
  std::optional<std::chrono::sys_seconds> date;  // of the server's clock
};

// Ends a call from outside.
struct CallLimit {
  pushpull::Deadline deadline;
  const Cancellation& cancellation;
};

// An object is at most 1.5 MiB in etcd, and a few times that as JSON. A page of a list that exceeds
// this limit is requested again with fewer objects (client.h).
inline constexpr size_t kResponseBytesMax = size_t{8} << 20;
// For status line and headers.
inline constexpr size_t kHeadBytesMax = size_t{256} << 10;

// Receives the body of a 200 response piece by piece, instead of HttpResponse::body. An error ends
// the exchange with that error.
using BodySink = std::function<absl::Status(absl::string_view piece)>;

// Thread-safe; exchanges from different threads run concurrently, each on its own connection.
class HttpClient {
 public:
  explicit HttpClient(const ServerAddress& server, size_t body_bytes_max = kResponseBytesMax);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends the request at most once, on an idle connection made with the same TLS material or on a
  // new one. `sink` may be null. Blocks until the response is complete.
  HttpResponse Exchange(const HttpRequest& request,
                        const RequestAuth& auth,
                        const BodySink& sink,
                        const CallLimit& limit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Session;

  const ServerAddress server_;
  const size_t body_bytes_max_;
  pushpull::Mutex mu_;
  std::vector<std::unique_ptr<Session>> idle_ ABSL_GUARDED_BY(mu_);
};

// The status of a transfer that ended with this CURLcode; `details`: libcurl's text, may be empty.
absl::Status StatusFromCurl(int code, absl::string_view details);

}  // namespace pushpull_operator
