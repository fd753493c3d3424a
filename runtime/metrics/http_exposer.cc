// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/http_exposer.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <httplib.h>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/metrics/own_host.h"

namespace pushpull {
namespace {

// At each limit the oldest connection makes room, so that a probe never has to wait.
constexpr size_t kConnectionsMax = 64;
constexpr size_t kConnectionsOfAddressMax = 8;
// Scrapes whose text is being made or sent; further ones are answered with 503. One address gets at
// most half of them.
constexpr size_t kScrapesMax = 4;
constexpr size_t kScrapesOfAddressMax = 2;
// From the connection to the end of the request's headers.
constexpr std::chrono::seconds kHeadersTime{1};
// From there to the end of the answer.
constexpr std::chrono::seconds kAnswerTime{5};
// A scraper's request takes a few hundred bytes.
constexpr size_t kRequestBytesMax = 16 * 1024;
// Accepting keeps failing while the process has no free descriptor.
constexpr Duration kPauseWhenExhausted = std::chrono::milliseconds(100);

enum class WithBody { kYes, kNo };

// An answer: what is sent before the body, and the body, which it may share with other answers.
struct Outgoing {
  std::string head;  // empty: no answer yet
  std::shared_ptr<const std::string> body = nullptr;

  size_t size() const { return head.size() + (body == nullptr ? 0 : body->size()); }
  // The contiguous bytes from `begin` on.
  absl::string_view PieceAt(size_t begin) const {
    if (begin < head.size()) return absl::string_view(head).substr(begin);
    return absl::string_view(*body).substr(begin - head.size());
  }
};

// `headers`: whole lines.
Outgoing Response(absl::string_view status,
                  absl::string_view headers,
                  std::shared_ptr<const std::string> text,
                  WithBody body) {
  std::string head = absl::StrCat("HTTP/1.1 ",
                                  status,
                                  "\r\n",
                                  headers,
                                  "Content-Length: ",
                                  text->size(),
                                  "\r\nConnection: close\r\n\r\n");
  return {.head = std::move(head), .body = body == WithBody::kYes ? std::move(text) : nullptr};
}

Outgoing Response(absl::string_view status, std::string text, WithBody body) {
  return Response(status,
                  "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                  std::make_shared<const std::string>(std::move(text)),
                  body);
}

// A page may load and do only what it needs to show itself, and only from here.
constexpr absl::string_view kResourceHeaders =
    "Cache-Control: no-cache\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n";

// The value of the request's first header of this name, such as "accept:"; empty if there is none.
absl::string_view HeaderOf(absl::string_view request, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(request, "\r\n")) {
    if (absl::StartsWithIgnoreCase(line, name))
      return absl::StripAsciiWhitespace(line.substr(name.size()));
  }
  return "";
}

Outgoing Response(const HttpResource& resource, absl::string_view request, WithBody body) {
  const HttpContent content = resource.content();
  if (content.text == nullptr)
    return Response("503 Service Unavailable", "not yet: try again in a second\n", body);
  const std::string etag = absl::StrCat("\"", content.etag, "\"");
  std::string headers = absl::StrCat("ETag: ", etag, "\r\n", kResourceHeaders);
  if (absl::StrContains(HeaderOf(request, "if-none-match:"), etag))
    return {.head = absl::StrCat(
                "HTTP/1.1 304 Not Modified\r\n", headers, "Connection: close\r\n\r\n")};
  absl::StrAppend(&headers, "Content-Type: ", resource.content_type, "\r\n");
  return Response("200 OK", headers, content.text, body);
}

Outgoing ForAnotherHost(absl::string_view host, WithBody body) {
  return Response("403 Forbidden",
                  absl::StrCat("the request is for host ",
                               Printable(host),
                               ", which is not known to be this process: use its address or "
                               "localhost, or name the host in PUSHPULL_PAGE_HOSTS of this "
                               "process\n"),
                  body);
}

Outgoing TooManyScrapes() {
  return Response("503 Service Unavailable",
                  "too many scrapes at once: try again in a few seconds\n",
                  WithBody::kYes);
}

// The host that a connection comes from, without its port.
std::string AddressOf(const sockaddr_storage& peer) {
  const auto bytes = [](const auto& address) {
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  };
  if (peer.ss_family == AF_INET6)
    return bytes(reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr);
  return bytes(reinterpret_cast<const sockaddr_in&>(peer).sin_addr);
}

bool IsAgain(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

// Confined to its loop.
class HttpExposer::Impl final {
 public:
  // `listener` must be listening and non-blocking.
  Impl(HttpExposerOptions options, FileDescriptor listener)
      : options_(std::move(options)), listener_(std::move(listener)) {
    loop_.Post([this] { WatchListener(); });
  }
  ~Impl() { loop_.Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

 private:
  struct Connection {
    FileDescriptor socket;
    std::string address;
    uint64_t number = 0;  // order of acceptance
    Executor::TimerId timeout = 0;
    std::string request;     // what has arrived so far
    bool is_scrape = false;  // a scrape whose text is being made or sent
    Outgoing response;
    size_t num_sent = 0;

    bool is_waited_for() const { return !is_answered() && !is_scrape; }
    bool is_answered() const { return !response.head.empty(); }
  };

  void WatchListener() {
    const absl::Status watched =
        loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
    if (!watched.ok()) loop_.RunAfter(kPauseWhenExhausted, [this] { WatchListener(); });
  }

  void Accept() {
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    FileDescriptor socket(accept4(listener_.get(),
                                  reinterpret_cast<sockaddr*>(&peer),
                                  &peer_size,
                                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (IsAgain(errno) || errno == ECONNABORTED) return;
      loop_.Unwatch(listener_.get());
      loop_.RunAfter(kPauseWhenExhausted, [this] { WatchListener(); });
      return;
    }
    const std::string address = AddressOf(peer);
    MakeRoom(address);
    const int fd = socket.get();
    if (!loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { OnReady(fd); }).ok()) return;
    Connection& connection = connections_[fd];
    connection.socket = std::move(socket);
    connection.address = address;
    connection.number = ++num_accepted_;
    connection.timeout = loop_.RunAfter(kHeadersTime, [this, fd] { Close(fd); });
  }

  // Makes room for a connection from `address`. At the total limit, one of the address with the
  // most connections is closed.
  void MakeRoom(const std::string& address) {
    if (NumOf(address) >= kConnectionsOfAddressMax) return Close(OldestOf(address));
    if (connections_.size() < kConnectionsMax) return;
    std::string most = address;
    for (const auto& [fd, connection] : connections_) {
      if (NumOf(connection.address) > NumOf(most)) most = connection.address;
    }
    Close(OldestOf(most));
  }

  size_t NumOf(const std::string& address) const {
    return static_cast<size_t>(absl::c_count_if(
        connections_, [&](const auto& entry) { return entry.second.address == address; }));
  }

  // The oldest connection of the address; prefers those whose request has not arrived.
  int OldestOf(const std::string& address) const {
    const auto rank = [&](const auto& entry) {
      const Connection& connection = entry.second;
      return std::tuple(
          connection.address != address, !connection.is_waited_for(), connection.number);
    };
    return absl::c_min_element(connections_,
                               [&](const auto& a, const auto& b) { return rank(a) < rank(b); })
        ->first;
  }

  void OnReady(int fd) {
    Connection& connection = connections_.at(fd);
    if (connection.is_scrape && !connection.is_answered()) return;  // its text is about to be made
    const bool goes_on = connection.is_answered() ? Write(connection) : Read(connection);
    if (!goes_on) Close(fd);
  }

  void Close(int fd) {
    loop_.Cancel(connections_.at(fd).timeout);
    loop_.Unwatch(fd);
    connections_.erase(fd);
  }

  // False, here and below: the connection has to be closed.
  bool Read(Connection& connection) {
    std::array<char, 4096> buffer;
    const ssize_t got = recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && IsAgain(errno)) return true;
    if (got <= 0) return false;
    connection.request.append(buffer.data(), static_cast<size_t>(got));
    if (absl::StrContains(connection.request, "\r\n\r\n")) return OnRequest(connection);
    if (connection.request.size() < kRequestBytesMax) return true;
    return Respond(connection,
                   Response("431 Request Header Fields Too Large", "too large\n", WithBody::kYes));
  }

  bool OnRequest(Connection& connection) {
    const int fd = connection.socket.get();
    loop_.Cancel(connection.timeout);
    connection.timeout = loop_.RunAfter(kAnswerTime, [this, fd] { Close(fd); });
    Outgoing response = Answer(connection.request);
    if (!response.head.empty()) return Respond(connection, std::move(response));
    const auto is_scrape = [](const auto& entry) { return entry.second.is_scrape; };
    const auto is_of_address = [&](const auto& entry) {
      return entry.second.is_scrape && entry.second.address == connection.address;
    };
    if (static_cast<size_t>(absl::c_count_if(connections_, is_scrape)) >= kScrapesMax ||
        static_cast<size_t>(absl::c_count_if(connections_, is_of_address)) >= kScrapesOfAddressMax)
      return Respond(connection, TooManyScrapes());
    connection.is_scrape = true;
    // Queued after what is ready now, so that a probe waits for the text of at most one scrape.
    scrapes_.push_back(connection.number);
    if (scrapes_.size() == 1) loop_.Post([this] { Scrape(); });
    return true;
  }

  void Scrape() {
    const auto scraped = absl::c_find_if(connections_, [this](const auto& entry) {
      return entry.second.number == scrapes_.front();
    });
    if (scraped != connections_.end()) {
      const int fd = scraped->first;
      Connection& connection = scraped->second;
      if (!Respond(connection, MetricsResponse(connection.request))) Close(fd);
    }
    scrapes_.pop_front();
    if (!scrapes_.empty()) loop_.Post([this] { Scrape(); });
  }

  Outgoing MetricsResponse(absl::string_view request) const {
    const MetricsFormat format = FormatFor(HeaderOf(request, "accept:"));
    return Response("200 OK",
                    absl::StrCat("Content-Type: ", ContentType(format), "\r\nVary: Accept\r\n"),
                    std::make_shared<const std::string>(options_.metrics(format)),
                    absl::StartsWith(request, "GET ") ? WithBody::kYes : WithBody::kNo);
  }

  bool Respond(Connection& connection, Outgoing response) {
    connection.response = std::move(response);
    return Write(connection);
  }

  bool Write(Connection& connection) {
    while (connection.num_sent < connection.response.size()) {
      const absl::string_view piece = connection.response.PieceAt(connection.num_sent);
      const ssize_t sent = send(connection.socket.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
      if (sent < 0 && !IsAgain(errno)) return false;
      if (sent > 0) connection.num_sent += static_cast<size_t>(sent);
      // A reader that keeps up must not make others wait: the rest is sent after their turn.
      if (sent < static_cast<ssize_t>(piece.size())) break;
    }
    if (connection.num_sent == connection.response.size()) return false;
    return loop_.Rewatch(connection.socket.get(), EPOLLOUT).ok();
  }

  // Of a complete request only method and path, both in its first line, for resources also the host
  // and the ETag of a cache matter. Empty: a scrape.
  Outgoing Answer(absl::string_view request) const {
    const std::vector<absl::string_view> line =
        absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    if (line.size() != 3 || !absl::StartsWith(line[2], "HTTP/1."))
      return Response("400 Bad Request", "this is no HTTP/1 request\n", WithBody::kYes);
    if (line[0] != "GET" && line[0] != "HEAD")
      return Response("405 Method Not Allowed", "only GET and HEAD\n", WithBody::kYes);
    const WithBody body = line[0] == "GET" ? WithBody::kYes : WithBody::kNo;
    const absl::string_view path = line[1].substr(0, line[1].find('?'));
    if (path == "/metrics") return {};
    if (path == "/livez") return Response("200 OK", "ok\n", body);
    if (path == "/readyz") {
      const absl::Status status = options_.ready();
      if (status.ok()) return Response("200 OK", "ok\n", body);
      return Response("503 Service Unavailable", status.ToString() + "\n", body);
    }
    const auto resource = options_.resources.find(std::string(path));
    if (resource != options_.resources.end()) {
      const absl::string_view host = HeaderOf(request, "host:");
      if (!IsOwnHost(host, options_.names)) return ForAnotherHost(host, body);
      return Response(resource->second, request, body);
    }
    return Response("404 Not Found", "not found: there are /metrics, /livez and /readyz\n", body);
  }

  const HttpExposerOptions options_;
  const FileDescriptor listener_;
  std::map<int, Connection> connections_;  // by descriptor; at most kConnectionsMax
  uint64_t num_accepted_ = 0;
  std::deque<uint64_t> scrapes_;    // pending, by the connection's number
  EventLoop loop_{"metrics-http"};  // last: its handlers use all of the above
};

absl::StatusOr<std::unique_ptr<HttpExposer>> HttpExposer::Start(HttpExposerOptions options) {
  PUSHPULL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.listen));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor listener, BindTo(address));
  if (listen(listener.get(), SOMAXCONN) != 0)
    return StatusFromErrno(errno, absl::StrCat("listen on ", ToString(address)));
  PUSHPULL_ASSIGN_OR_RETURN(address.port, BoundPort(listener));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(listener));
  return std::unique_ptr<HttpExposer>(new HttpExposer(std::move(impl), ToString(address)));
}

HttpExposer::HttpExposer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

HttpExposer::~HttpExposer() = default;

absl::StatusOr<std::string> FetchMetrics(const std::string& address) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  httplib::Client client(host_port.host, host_port.port);
  client.set_connection_timeout(kAnswerTime);
  client.set_read_timeout(kAnswerTime);
  const httplib::Result answer = client.Get("/metrics");
  if (answer && answer->status == 200) return answer->body;
  return absl::UnavailableError(absl::StrCat(
      "metrics at ",
      address,
      ": ",
      answer ? absl::StrCat("answered ", answer->status) : httplib::to_string(answer.error())));
}

double SeriesValue(absl::string_view body, absl::string_view series) {
  for (const absl::string_view line : absl::StrSplit(body, '\n')) {
    double value = 0;
    const bool is_series = absl::StartsWith(line, series) && line.substr(series.size(), 1) == " ";
    if (is_series && absl::SimpleAtod(line.substr(series.size() + 1), &value)) return value;
  }
  return 0;
}

}  // namespace pushpull
