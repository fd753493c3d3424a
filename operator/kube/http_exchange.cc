// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/http_exchange.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include <httplib.h>

#include "operator/kube/server_clock.h"

namespace pushpull_operator {
namespace {

// Of status line and headers; the library alone would read a line without end.
constexpr size_t kHeadBytesMax = size_t{256} << 10;
// Nobody means a pause of more than a day.
constexpr int64_t kRetryAfterMax = 86'400;

// The connection as the library sees it. Keeps the first error, for which the library has no room.
class LimitedStream final : public httplib::Stream {
 public:
  LimitedStream(Connection& connection, const CallLimit& limit)
      : connection_(connection), limit_(limit) {}

  const absl::Status& status() const { return status_; }
  // From now on a body is read, which has its own bound.
  void EndHead() { is_in_head_ = false; }

  // Read and write wait by themselves.
  bool is_readable() const override { return status_.ok(); }
  bool is_writable() const override { return status_.ok(); }
  socket_t socket() const override { return connection_.fd(); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }

  ssize_t read(char* out, size_t bytes_max) override {
    if (position_ == filled_ && !Fill()) return status_.ok() ? 0 : -1;
    const size_t count = std::min(bytes_max, filled_ - position_);
    std::copy_n(buffer_.data() + position_, count, out);
    position_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t bytes) override {
    if (!status_.ok()) return -1;
    const absl::StatusOr<size_t> count = connection_.Write({data, bytes}, limit_);
    if (!count.ok()) {
      status_ = count.status();
      return -1;
    }
    return static_cast<ssize_t>(*count);
  }

 private:
  // Nothing of ours looks at who answers.
  static void NoAddress(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }

  // False at the end of the stream and on an error.
  bool Fill() {
    if (!status_.ok()) return false;
    const absl::StatusOr<size_t> count = connection_.Read(buffer_.data(), buffer_.size(), limit_);
    if (!count.ok()) {
      status_ = count.status();
      return false;
    }
    position_ = 0;
    filled_ = *count;
    if (is_in_head_ && (head_bytes_ += filled_) > kHeadBytesMax) {
      status_ = absl::ResourceExhaustedError("the headers of the answer do not end");
      return false;
    }
    return filled_ > 0;
  }

  Connection& connection_;
  const CallLimit limit_;
  absl::Status status_;
  std::array<char, 16 * 1024> buffer_;
  size_t position_ = 0;
  size_t filled_ = 0;
  size_t head_bytes_ = 0;
  bool is_in_head_ = true;
};

// The library's reading and writing of messages without its handling of sockets, which has no
// deadline for a whole call and cannot be cancelled while it connects.
class Framing final : public httplib::ClientImpl {
 public:
  using httplib::ClientImpl::ClientImpl;
  using httplib::ClientImpl::process_request;
};

std::optional<std::chrono::seconds> RetryAfter(const httplib::Response& response) {
  int64_t seconds = 0;
  // The other form, a date, is not used by Kubernetes.
  if (!absl::SimpleAtoi(response.get_header_value("Retry-After"), &seconds) || seconds < 0) {
    return std::nullopt;
  }
  return std::chrono::seconds(std::min(seconds, kRetryAfterMax));
}

httplib::Request ToLibrary(const HttpRequest& request,
                           const std::string& host,
                           const std::string& token) {
  httplib::Request made;
  made.method = request.method;
  made.path = request.target;
  made.body = request.body;
  made.headers = {{"Host", host},
                  {"Accept", request.accept},
                  {"Accept-Encoding", "identity"},
                  {"User-Agent", "pushpull-operator"}};
  if (!token.empty()) made.headers.emplace("Authorization", absl::StrCat("Bearer ", token));
  if (!request.content_type.empty()) made.headers.emplace("Content-Type", request.content_type);
  return made;
}

// Where the body goes, and what it has said.
struct BodyReader {
  const BodySink& sink;
  std::string text;
  absl::Status status;
  bool is_streamed = false;

  bool Take(absl::string_view piece) {
    if (is_streamed) {
      status = sink(piece);
    } else if (text.size() + piece.size() > kResponseBytesMax) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("the answer has more than ", kResponseBytesMax, " bytes"));
    } else {
      text.append(piece.data(), piece.size());
    }
    return status.ok();
  }
};

}  // namespace

absl::StatusOr<HttpResponse> Exchange(Connection& connection,
                                      const HttpRequest& request,
                                      const std::string& host,
                                      const std::string& token,
                                      const BodySink& sink,
                                      const CallLimit& limit) try {
  LimitedStream stream(connection, limit);
  BodyReader body{.sink = sink};
  httplib::Request library_request = ToLibrary(request, host, token);
  library_request.response_handler = [&](const httplib::Response& response) {
    stream.EndHead();
    body.is_streamed = sink != nullptr && response.status == 200;
    return true;
  };
  library_request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    return body.Take({data, size});
  };
  httplib::Response response;
  httplib::Error error = httplib::Error::Success;
  Framing framing(host);
  framing.set_url_encode(false);  // the target is encoded
  const bool is_done =
      framing.process_request(stream, library_request, response, /*close_connection=*/false, error);
  if (!body.status.ok()) return body.status;
  if (!stream.status().ok()) return stream.status();
  if (!is_done) {
    return absl::UnavailableError(
        response.status > 0 ? "the answer of the API server breaks off"
                            : "the API server has closed the connection without an answer");
  }
  return HttpResponse{
      .code = response.status,
      .body = std::move(body.text),
      .retry_after = RetryAfter(response),
      .date = ParseHttpDate(response.get_header_value("Date")),
      .can_reuse_connection =
          response.version == "HTTP/1.1" &&
          !absl::EqualsIgnoreCase(response.get_header_value("Connection"), "close")};
} catch (const std::exception& error) {  // the library's: out of memory, a broken length
  return absl::UnavailableError(absl::StrCat("the answer of the API server: ", error.what()));
}

}  // namespace pushpull_operator
