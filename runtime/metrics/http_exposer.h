// SPDX-License-Identifier: Apache-2.0
//
// Serves /metrics, /livez and /readyz of a role, and the other resources that it has there
// (docs/interfaces.md section 6). registry.h owns the series; the role defines what "ready" means.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/metrics/metrics_format.h"

namespace pushpull {

// Bytes that any number of answers share, so that many clients cost no copies.
struct HttpContent {
  std::shared_ptr<const std::string> text;
  std::string etag;  // changes whenever the text changes; letters, digits and '-'
};

// What a path beyond those of every role answers: to GET and HEAD, with an ETag, and with headers
// that let a browser load only what is served here and not show it in a frame. A request for
// another host is answered with 403.
struct HttpResource {
  std::string content_type;
  // Called for each request, like `metrics` below. Without a text the answer is 503.
  std::function<HttpContent()> content;
};

struct HttpExposerOptions {
  std::string listen;  // host:port; port 0 takes a free port

  // Returns the body of /metrics in the requested format. Called on the exposer's thread, which it
  // must not block.
  std::function<std::string(MetricsFormat)> metrics;

  // If OK, /readyz answers 200; otherwise 503 with the status as text. Called like `metrics`.
  std::function<absl::Status()> ready;

  // By path: "/", "/status.json". A query after the path is ignored.
  std::map<std::string, HttpResource> resources = {};

  // By which names a browser may ask for the resources; own_host.h says which hosts need no name.
  std::vector<std::string> names = {};
};

// Serves on its own thread, "metrics-http", until it is destroyed, which drops the requests in
// progress. A probe is answered whatever other clients do: a request must arrive within 1 s and
// have at most 16 KiB, its answer gets 5 s; beyond 64 connections, 8 from one address, a new one
// closes the oldest; at most 4 scrapes run at once, 2 from one address, further ones are answered
// with 503. Resources need no such limit: their bytes are shared. Nothing that a client sends ends
// the process or makes it grow. Thread-safe.
class HttpExposer {
 public:
  // kInvalidArgument: `listen` is not host:port. kAlreadyExists: the port is in use.
  // kUnavailable: the host is not an address of this machine. Each names the address.
  static absl::StatusOr<std::unique_ptr<HttpExposer>> Start(HttpExposerOptions options);

  ~HttpExposer();
  HttpExposer(const HttpExposer&) = delete;
  HttpExposer& operator=(const HttpExposer&) = delete;

  // host:port with the actual port.
  const std::string& address() const { return address_; }

 private:
  class Impl;
  HttpExposer(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

// The body of /metrics at `address` (host:port). Blocks for at most 5 s. kUnavailable: no answer;
// the text names the address.
absl::StatusOr<std::string> FetchMetrics(const std::string& address);

// The value of a series in such a body, named with its labels as it is written there; 0 if absent.
double SeriesValue(absl::string_view body, absl::string_view series);

}  // namespace pushpull
