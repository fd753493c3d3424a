// SPDX-License-Identifier: Apache-2.0
//
// Serves /metrics, /livez and /readyz of a role, and what else it shows there (docs/interfaces.md
// section 6). The series are registry.h's part; what "ready" means is up to the role.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/metrics/metrics_format.h"

namespace pushpull {

// Bytes that any number of answers share, so that a crowd of clients costs no copies.
struct HttpContent {
  std::shared_ptr<const std::string> text;
  std::string etag;  // another one whenever the text is another; letters, digits and '-'
};

// What a path answers beside those of every role: to GET and HEAD, with an ETag, and with headers
// that let a browser load nothing but what is served here and frame it nowhere.
struct HttpResource {
  std::string content_type;
  // Called for each request like `metrics` below. Without a text: the answer is 503.
  std::function<HttpContent()> content;
};

struct HttpExposerOptions {
  std::string listen;  // host:port; port 0 takes a free one

  // The body of /metrics in the format that the request asks for. Called on the exposer's thread,
  // which it must not block.
  std::function<std::string(MetricsFormat)> metrics;

  // OK: /readyz answers 200; otherwise 503 and the status as text. Called like `metrics`.
  std::function<absl::Status()> ready;

  // By path: "/", "/status.json". A query behind the path is ignored.
  std::map<std::string, HttpResource> resources = {};
};

// Serves on a thread of its own, "metrics-http", until it is destroyed, which drops the requests in
// progress. A probe is answered whatever other clients do: a request has 1 s to arrive and at most
// 16 KiB, its answer 5 s; of 64 connections, 8 from one address, the oldest is closed when another
// one comes; 4 scrapes at once, 2 from one address, further ones are answered with 503. Resources
// need no such limit: their bytes are shared. Nothing a client sends ends the process or makes it
// grow. Thread-safe.
class HttpExposer {
 public:
  // kInvalidArgument: `listen` is no host:port. kAlreadyExists: the port is in use.
  // kUnavailable: the host is not an address of this machine. Each names the address.
  static absl::StatusOr<std::unique_ptr<HttpExposer>> Start(HttpExposerOptions options);

  ~HttpExposer();
  HttpExposer(const HttpExposer&) = delete;
  HttpExposer& operator=(const HttpExposer&) = delete;

  // host:port with the real port.
  const std::string& address() const { return address_; }

 private:
  class Impl;
  HttpExposer(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

// The body of /metrics at `address` (host:port). Blocks for 5 s at most. kUnavailable: no answer;
// the text names the address.
absl::StatusOr<std::string> FetchMetrics(const std::string& address);

// The value of a series in such a body, named with its labels as written there; 0 if absent.
double SeriesValue(absl::string_view body, absl::string_view series);

}  // namespace pushpull
