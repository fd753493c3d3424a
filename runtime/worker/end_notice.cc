// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/end_notice.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "runtime/base/signals.h"

namespace pushpull {
namespace {

// One per process, as signals are.
struct Notice {
  const pid_t owner = getpid();
  std::atomic<bool> has_come = false;
  // Readable once the notice has arrived; never read, so that every loop sees it.
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  Mutex mu;
  int users ABSL_GUARDED_BY(mu) = 0;
};

// Never destroyed: a signal may come at any time.
std::atomic<Notice*>& NoticeOfProcess() {
  static std::atomic<Notice*> notice = new Notice;
  return notice;
}

Notice& TheNotice() {
  return *NoticeOfProcess();
}

void GiveSigtermBack();

// Does only what is allowed in a signal handler. TheNotice exists before the handler does.
void OnTerm(int signal, siginfo_t* info, void* /*context*/) {
  if (TheNotice().owner != getpid()) {  // forked, and not yet past LeaveToParent
    GiveSigtermBack();
    raise(signal);  // comes when this handler has returned
    return;
  }
  const bool is_urgent = info->si_code == SI_QUEUE && info->si_value.sival_int == kUrgent;
  if (TheNotice().has_come.exchange(true) || is_urgent) _exit(ExitCodeOf(signal));
  const int before = errno;
  const uint64_t one = 1;
  const ssize_t written = write(TheNotice().event, &one, sizeof one);
  static_cast<void>(written);  // cannot fail: nothing else ever writes to it
  errno = before;
}

void TakeSigterm() {
  struct sigaction present {};
  PUSHPULL_CHECK(sigaction(SIGTERM, nullptr, &present) == 0);
  const bool is_free = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
  if (!is_free) return;
  struct sigaction notice {};
  notice.sa_sigaction = OnTerm;
  notice.sa_flags = SA_SIGINFO | SA_RESTART;
  PUSHPULL_CHECK(sigaction(SIGTERM, &notice, nullptr) == 0);
}

void GiveSigtermBack() {
  struct sigaction present {};
  PUSHPULL_CHECK(sigaction(SIGTERM, nullptr, &present) == 0);
  if ((present.sa_flags & SA_SIGINFO) == 0 || present.sa_sigaction != OnTerm) return;
  struct sigaction none {};
  none.sa_handler = SIG_DFL;
  PUSHPULL_CHECK(sigaction(SIGTERM, &none, nullptr) == 0);
}

}  // namespace

EndNotice::EndNotice(EventLoop& loop, std::function<void()> on_notice) : loop_(loop) {
  Notice& notice = TheNotice();
  PUSHPULL_CHECK(notice.event >= 0);
  event_ = std::make_shared<const FileDescriptor>(fcntl(notice.event, F_DUPFD_CLOEXEC, 0));
  PUSHPULL_CHECK(event_->is_open());
  {
    MutexLock lock(notice.mu);
    if (notice.users++ == 0) TakeSigterm();
  }
  loop_.Post([&loop, event = event_, on_notice = std::move(on_notice)] {
    const auto on_ready = [&loop, fd = event->get(), on_notice](uint32_t) {
      const std::function<void()> tell = on_notice;  // Unwatch destroys the captures
      loop.Unwatch(fd);
      tell();
    };
    PUSHPULL_CHECK(loop.Watch(event->get(), EPOLLIN, on_ready).ok());
  });
}

void EndNotice::LeaveToParent() {
  GiveSigtermBack();
  close(TheNotice().event);
  NoticeOfProcess() = new Notice;
}

EndNotice::~EndNotice() {
  loop_.Post([&loop = loop_, event = std::move(event_)] { loop.Unwatch(event->get()); });
  MutexLock lock(TheNotice().mu);
  if (--TheNotice().users == 0) GiveSigtermBack();
}

}  // namespace pushpull
