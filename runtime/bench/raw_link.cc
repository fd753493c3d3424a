// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/raw_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <thread>
#include <utility>

#include "pushpull/deadline.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kCallBytes = 256 * 1024;
constexpr size_t kStreams = 2;
constexpr Duration kSilence = std::chrono::seconds(30);

struct SocketPair {
  FileDescriptor near;
  FileDescriptor far;
};

void SetTimeouts(int socket) {
  const timeval silence{
      .tv_sec = std::chrono::duration_cast<std::chrono::seconds>(kSilence).count(), .tv_usec = 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The two blocking ends of one connection over the loopback.
absl::StatusOr<SocketPair> ConnectPair() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, length) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), generic, &length) != 0)
    return StatusFromErrno(errno, "listen on the loopback");
  SocketPair pair{FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  if (connect(pair.near.get(), generic, length) != 0)
    return StatusFromErrno(errno, "connect over the loopback");
  pair.far = FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!pair.far.is_open()) return StatusFromErrno(errno, "accept on the loopback");
  SetTimeouts(pair.near.get());
  SetTimeouts(pair.far.get());
  return pair;
}

// Calls `move` for pieces of `memory`, cycling through it from `start`, until `num_bytes` have been
// moved. `move` returns the result of the system call.
template <typename Move>
absl::Status Walk(std::span<std::byte> memory, size_t start, uint64_t num_bytes, Move move) {
  size_t at = start;
  while (num_bytes > 0) {
    const size_t piece = std::min<uint64_t>({kCallBytes, memory.size() - at, num_bytes});
    const ssize_t moved = move(memory.subspan(at, piece));
    if (moved == 0) return absl::UnavailableError("the raw link was closed");
    if (moved < 0 && errno != EINTR) return StatusFromErrno(errno, "the raw link");
    if (moved < 0) continue;
    num_bytes -= static_cast<uint64_t>(moved);
    at = (at + static_cast<size_t>(moved)) % memory.size();
  }
  return absl::OkStatus();
}

// The result of one of a burst's threads.
struct End {
  absl::Status status;
  double cpu_seconds = 0;
};

// One end of a round trip: a non-blocking socket, and the epoll instance that says when to read.
class EpollEnd {
 public:
  static absl::StatusOr<EpollEnd> Make(FileDescriptor socket) {
    FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!epoll.is_open() || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
      return StatusFromErrno(errno, "epoll");
    return EpollEnd(std::move(socket), std::move(epoll));
  }

  absl::Status Send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) return StatusFromErrno(errno, "send");
      if (sent > 0) bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return absl::OkStatus();
  }

  absl::Status Receive(std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      epoll_event event{};
      const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(kSilence).count();
      const int ready = epoll_wait(epoll_.get(), &event, 1, static_cast<int>(silence));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return absl::DeadlineExceededError("no round trip over the loopback");
      const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0) return absl::UnavailableError("the other end has gone");
      if (got < 0 && errno != EINTR && errno != EAGAIN) return StatusFromErrno(errno, "receive");
      if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }

 private:
  EpollEnd(FileDescriptor socket, FileDescriptor epoll)
      : socket_(std::move(socket)), epoll_(std::move(epoll)) {}

  FileDescriptor socket_;
  FileDescriptor epoll_;
};

absl::Status Echo(const EpollEnd& end, size_t num_bytes, size_t count) {
  std::vector<std::byte> buffer(num_bytes);
  for (size_t i = 0; i < count; ++i) {
    PUSHPULL_RETURN_IF_ERROR(end.Receive(buffer));
    PUSHPULL_RETURN_IF_ERROR(end.Send(buffer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Ask(const EpollEnd& end, size_t num_bytes, size_t count) {
  std::vector<std::byte> buffer(num_bytes);
  std::vector<double> seconds;
  for (size_t i = 0; i < count; ++i) {
    const SteadyTime begin = std::chrono::steady_clock::now();
    PUSHPULL_RETURN_IF_ERROR(end.Send(buffer));
    PUSHPULL_RETURN_IF_ERROR(end.Receive(buffer));
    seconds.push_back(ToSeconds(std::chrono::steady_clock::now() - begin));
  }
  return seconds;
}

}  // namespace

int64_t NanosecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::StatusOr<LinkBurst> RawLink::Measure(uint64_t num_bytes) {
  std::array<SocketPair, kStreams> pairs;
  for (SocketPair& pair : pairs) {
    PUSHPULL_ASSIGN_OR_RETURN(pair, ConnectPair());
  }
  std::array<End, 2 * kStreams> ends;
  const uint64_t part = num_bytes / kStreams;
  const SteadyTime begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    const auto walk = [&](End& end, std::span<std::byte> memory, size_t start, auto move) {
      threads.emplace_back([&end, memory, start, part, move] {
        end.status = Walk(memory, start, part, move);
        end.cpu_seconds = static_cast<double>(NanosecondsOf(CLOCK_THREAD_CPUTIME_ID)) * 1e-9;
      });
    };
    for (size_t i = 0; i < kStreams; ++i) {
      const size_t start = i * (kMemoryBytes / kStreams);
      walk(ends[2 * i], outgoing_, start, [socket = pairs[i].near.get()](auto piece) {
        return send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
      });
      walk(ends[2 * i + 1], incoming_, start, [socket = pairs[i].far.get()](auto piece) {
        return recv(socket, piece.data(), piece.size(), 0);
      });
    }
  }
  const double seconds = ToSeconds(std::chrono::steady_clock::now() - begin);
  double cpu_seconds = 0;
  for (const End& end : ends) {
    PUSHPULL_RETURN_IF_ERROR(end.status);
    cpu_seconds += end.cpu_seconds;
  }
  const auto moved = static_cast<double>(part * kStreams);
  return LinkBurst{.bytes_per_second = moved / seconds,
                   .cpu_seconds_per_gigabyte = cpu_seconds / (moved / 1e9)};
}

absl::StatusOr<std::vector<double>> MeasureRoundTrips(size_t num_bytes, size_t count) {
  PUSHPULL_ASSIGN_OR_RETURN(SocketPair pair, ConnectPair());
  PUSHPULL_ASSIGN_OR_RETURN(const EpollEnd near, EpollEnd::Make(std::move(pair.near)));
  PUSHPULL_ASSIGN_OR_RETURN(const EpollEnd far, EpollEnd::Make(std::move(pair.far)));
  absl::Status echoed;
  std::jthread other([&] { echoed = Echo(far, num_bytes, count); });
  absl::StatusOr<std::vector<double>> seconds = Ask(near, num_bytes, count);
  other.join();
  PUSHPULL_RETURN_IF_ERROR(echoed);
  return seconds;
}

}  // namespace pushpull
