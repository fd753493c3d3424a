// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/http_exposer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <httplib.h>

#include "runtime/base/deadline.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// A scraper and a probe at the same time.
constexpr size_t kThreads = 2;
// Connections accepted and not yet looked at; further ones wait in the kernel's backlog.
constexpr size_t kWaitingMax = 16;
constexpr std::chrono::seconds kRequestTime{5};
// A scraper's request has a few hundred bytes. The library alone would read a line without end.
constexpr size_t kRequestBytesMax = 16 * 1024;

// One connection as the library sees it, with bounds on the time and the bytes it may take.
class BoundedStream final : public httplib::Stream {
 public:
  explicit BoundedStream(int fd) : fd_(fd), deadline_(Deadline::After(kRequestTime)) {}

  bool is_readable() const override { return position_ < filled_ || IsReady(POLLIN); }
  bool is_writable() const override { return IsReady(POLLOUT); }
  socket_t socket() const override { return fd_; }

  ssize_t read(char* out, size_t bytes) override {
    if (position_ == filled_ && !Fill()) return -1;
    const size_t count = std::min(bytes, filled_ - position_);
    std::copy_n(buffer_.data() + position_, count, out);
    position_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t bytes) override {
    if (!IsReady(POLLOUT)) return -1;
    return send(fd_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }

 private:
  // Nothing of ours looks at who asks.
  static void NoAddress(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }

  bool IsReady(short events) const {
    pollfd waiting{.fd = fd_, .events = events, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_.remaining());
    return poll(&waiting, 1, static_cast<int>(left.count())) == 1;
  }

  bool Fill() {
    if (total_ >= kRequestBytesMax || !IsReady(POLLIN)) return false;
    const ssize_t count = recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count <= 0) return false;
    position_ = 0;
    filled_ = static_cast<size_t>(count);
    total_ += filled_;
    return true;
  }

  const int fd_;
  const Deadline deadline_;
  std::array<char, 2048> buffer_;
  size_t position_ = 0;
  size_t filled_ = 0;
  size_t total_ = 0;
};

// The library's thread pool with a bound on what waits, and with named threads. Thread-safe.
class BoundedPool final : public httplib::TaskQueue {
 public:
  BoundedPool() {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
  }

  void enqueue(std::function<void()> job) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    // Ends: every job ends within kRequestTime.
    while (jobs_.size() >= kWaitingMax) changed_.WaitUntil(mu_, Deadline::After(kRequestTime));
    jobs_.push_back(std::move(job));
    changed_.NotifyAll();
  }

  void shutdown() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      is_stopping_ = true;
    }
    changed_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), "metrics-http");
    while (std::function<void()> job = Take()) {
      try {
        job();
      } catch (...) {  // out of memory for one request; the connection is closed already
      }
    }
  }

  // Empty when the pool stops.
  std::function<void()> Take() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (jobs_.empty() && !is_stopping_)
      changed_.WaitUntil(mu_, Deadline::After(std::chrono::minutes(1)));
    if (jobs_.empty()) return nullptr;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    changed_.NotifyAll();
    return job;
  }

  CondVar changed_;
  Mutex mu_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mu_);
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

void Answer(int code, const std::string& text, httplib::Response& response) {
  response.status = code;
  response.set_content(text, "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace

class HttpExposer::Impl final : private httplib::Server {
 public:
  explicit Impl(HttpExposerOptions options) : options_(std::move(options)) {
    new_task_queue = [this] {
      NoteAccepting();
      // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the library deletes it
      return new BoundedPool();
    };
    // Not the library's SO_REUSEPORT: two roles on one port must not share it silently.
    set_socket_options([](socket_t sock) {
      const int on = 1;
      setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Route(request, response);
      return HandlerResponse::Handled;
    });
  }

  ~Impl() override {
    is_stopping_ = true;
    if (!thread_.joinable()) return;
    AwaitAccepting();  // stop() before that would be lost
    stop();
    thread_.join();
  }

  // Returns the port.
  absl::StatusOr<uint16_t> Start(const HostPort& listen) {
    PUSHPULL_RETURN_IF_ERROR(CheckCanListen(listen));
    const int port = listen.port == 0                         ? bind_to_any_port(listen.host)
                     : bind_to_port(listen.host, listen.port) ? listen.port
                                                              : -1;
    if (port < 0)
      return absl::UnavailableError(absl::StrCat("listen on ", ToString(listen), ": bind failed"));
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "metrics-accept");
      listen_after_bind();
    });
    return static_cast<uint16_t>(port);
  }

 private:
  bool process_and_close_socket(socket_t sock) override {
    const FileDescriptor owner(sock);
    if (is_stopping_) return false;
    BoundedStream stream(sock);
    bool is_closed = false;
    const bool is_done = process_request(stream, /*close_connection=*/true, is_closed, nullptr);
    ::shutdown(sock, SHUT_RDWR);
    return is_done;
  }

  void Route(const httplib::Request& request, httplib::Response& response) const {
    if (request.method != "GET" && request.method != "HEAD") {
      Answer(405, "only GET and HEAD\n", response);
    } else if (request.path == "/metrics") {
      Answer(200, options_.metrics(), response);
    } else if (request.path == "/livez") {
      Answer(200, "ok\n", response);
    } else if (request.path == "/readyz") {
      const absl::Status status = options_.ready();
      Answer(status.ok() ? 200 : 503, status.ok() ? "ok\n" : status.ToString() + "\n", response);
    } else {
      Answer(404, "not found: there are /metrics, /livez and /readyz\n", response);
    }
  }

  void NoteAccepting() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_accepting_ = true;
    accepting_.NotifyAll();
  }

  void AwaitAccepting() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!is_accepting_) accepting_.WaitUntil(mu_, Deadline::After(kRequestTime));
  }

  const HttpExposerOptions options_;
  std::atomic<bool> is_stopping_ = false;
  CondVar accepting_;
  Mutex mu_;
  bool is_accepting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpExposer>> HttpExposer::Start(HttpExposerOptions options) {
  PUSHPULL_ASSIGN_OR_RETURN(HostPort listen, ParseHostPort(options.listen));
  auto impl = std::make_unique<Impl>(std::move(options));
  PUSHPULL_ASSIGN_OR_RETURN(listen.port, impl->Start(listen));
  return std::unique_ptr<HttpExposer>(new HttpExposer(std::move(impl), ToString(listen)));
}

HttpExposer::HttpExposer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

HttpExposer::~HttpExposer() = default;

absl::StatusOr<std::string> FetchMetrics(const std::string& address) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  httplib::Client client(host_port.host, host_port.port);
  client.set_connection_timeout(kRequestTime);
  client.set_read_timeout(kRequestTime);
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
