// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/signals.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <utility>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSet();
  PUSHPULL_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  PUSHPULL_CHECK(sigaction(SIGPIPE, &ignore, nullptr) == 0);
  PUSHPULL_CHECK(sigaction(SIGXFSZ, &ignore, nullptr) == 0);
}

int AwaitStopSignal(Duration duration) {
  const sigset_t set = StopSet();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  const timespec time{.tv_sec = seconds.count(),
                      .tv_nsec = std::chrono::nanoseconds(duration - seconds).count()};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal > 0 ? signal : 0;
}

StopSignals::StopSignals(EventLoop& loop, std::function<void(StopSignal)> on_signal)
    : loop_(loop), signals_(std::make_shared<FileDescriptor>()) {
  const sigset_t set = StopSet();
  *signals_ = FileDescriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  PUSHPULL_CHECK(signals_->is_open());
  loop_.Post([&loop, signals = signals_, on_signal = std::move(on_signal)] {
    const auto on_ready = [signals, on_signal](uint32_t) {
      signalfd_siginfo info{};
      while (read(signals->get(), &info, sizeof info) == sizeof info)
        on_signal({.number = static_cast<int>(info.ssi_signo),
                   .is_urgent = info.ssi_code == SI_QUEUE && info.ssi_int == kUrgent});
    };
    PUSHPULL_CHECK(loop.Watch(signals->get(), EPOLLIN, on_ready).ok());
  });
}

StopSignals::~StopSignals() {
  loop_.Post([&loop = loop_, signals = signals_] { loop.Unwatch(signals->get()); });
}

}  // namespace pushpull
