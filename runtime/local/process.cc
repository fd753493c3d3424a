// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/signals.h"

namespace pushpull {
namespace {

// A line longer than this is passed on in pieces.
constexpr size_t kLineBytesMax = 16 * 1024;
// Text without an end of line is passed on after this time: a progress bar ends its line once in an
// epoch. Of what the program has overwritten meanwhile, only the last is passed on.
constexpr Duration kPartPeriod = std::chrono::seconds(1);
// Reads per wake-up: a program that never stops printing must not monopolize the loop.
constexpr int kReadsMax = 8;

// How many bytes of a line a terminal would no longer show, because '\r' has begun it again.
size_t OverwrittenBytes(const std::string& line) {
  const size_t last = line.find_last_not_of('\r');
  if (last == std::string::npos) return line.empty() ? 0 : line.size() - 1;
  const size_t begun = line.rfind('\r', last);
  return begun == std::string::npos ? 0 : begun + 1;
}

// The line as a terminal shows it: without what was overwritten, and without the '\r' before an end
// of line.
std::string Shown(const std::string& line) {
  const std::string text = line.substr(OverwrittenBytes(line));
  return text.substr(0, text.find('\r'));
}

struct PipeEnds {
  FileDescriptor read;
  FileDescriptor write;
};

// `read_flags` are those of the reading end, O_NONBLOCK or 0; the program's end blocks.
absl::StatusOr<PipeEnds> MakePipe(int read_flags) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return StatusFromErrno(errno, "pipe");
  PipeEnds result{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  fcntl(result.read.get(), F_SETFL, read_flags);
  return result;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs between fork and exec, where it makes only async-signal-safe calls.
struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  int output;
  int ready;    // -1: none
  int error;    // receives errno if exec fails
  int gate;     // receives a byte when the program may begin
  int network;  // -1: that of this process
  pid_t parent;
};

// Blocks until the child has called exec, which closes its end, or exec has failed. 0: it runs.
int AwaitExec(const FileDescriptor& error) {
  int exec_error = 0;
  ssize_t got = 0;
  do {
    got = read(error.get(), &exec_error, sizeof exec_error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof exec_error ? exec_error : 0;
}

[[noreturn]] void BecomeChild(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent died before the line above
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.output, STDERR_FILENO);
  char go = 0;
  if (read(plan.gate, &go, 1) != 1) _exit(127);  // this process's parent has died or given up
  // Libraries open descriptors without O_CLOEXEC; the program must only inherit what it is meant
  // to.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (plan.ready >= 0) fcntl(plan.ready, F_SETFD, 0);
  if (plan.network < 0 || setns(plan.network, CLONE_NEWNET) == 0)
    execve(plan.arguments[0], plan.arguments, plan.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(plan.error, &error, sizeof error);
  _exit(127);
}

}  // namespace

std::string ToString(const ProcessEnd& end) {
  return end.signal != 0 ? absl::StrCat("was killed by signal ", end.signal)
                         : absl::StrCat("exited with code ", end.exit_code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ProcessSpec& spec,
                                                                  EventLoop& loop,
                                                                  ProcessEvents events) {
  absl::StatusOr<PipeEnds> output = MakePipe(O_NONBLOCK);
  absl::StatusOr<PipeEnds> ready = MakePipe(O_NONBLOCK);
  absl::StatusOr<PipeEnds> error = MakePipe(0);
  absl::StatusOr<PipeEnds> gate = MakePipe(0);
  for (const auto* pipe : {&output, &ready, &error, &gate}) {
    if (!pipe->ok()) return pipe->status();
  }
  std::vector<std::string> arguments = spec.command;
  if (spec.reports_ready) {
    arguments.insert(arguments.end(), {"--ready-fd", absl::StrCat(ready->write.get())});
  }
  std::vector<std::string> variables;
  for (const auto& [name, value] : spec.environment)
    variables.push_back(absl::StrCat(name, "=", value));
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> variable_pointers = Pointers(variables);
  const ChildPlan plan{argument_pointers.data(),
                       variable_pointers.data(),
                       output->write.get(),
                       spec.reports_ready ? ready->write.get() : -1,
                       error->write.get(),
                       gate->read.get(),
                       spec.network,
                       getpid()};
  const pid_t pid = fork();
  if (pid < 0) return StatusFromErrno(errno, absl::StrCat("start of ", spec.name));
  if (pid == 0) {
    gate->write.Reset();  // so that its end is seen when the parent dies
    BecomeChild(plan);
  }
  setpgid(pid, pid);  // on both sides: the group exists, whichever runs first
  if (events.on_forked) events.on_forked(pid);
  gate->read.Reset();
  // If the child is gone already, that is detected below.
  [[maybe_unused]] const ssize_t told = write(gate->write.get(), "", 1);
  for (PipeEnds* pipe : {&*output, &*ready, &*error}) pipe->write.Reset();
  if (const int exec_error = AwaitExec(error->read); exec_error != 0) {
    waitpid(pid, nullptr, 0);
    return StatusFromErrno(exec_error, absl::StrCat(spec.name, ": program ", spec.command[0]));
  }
  FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::unique_ptr<ChildProcess> process(new ChildProcess(pid, loop, std::move(events)));
  if (!spec.reports_ready) ready->read.Reset();
  const absl::Status watched =
      process->Watch(std::move(pidfd), std::move(output->read), std::move(ready->read));
  if (!watched.ok()) return watched;
  return process;
}

ChildProcess::~ChildProcess() {
  loop_.Cancel(part_timer_);
  for (const FileDescriptor* fd : {&pidfd_, &output_, &ready_}) {
    if (fd->is_open()) loop_.Unwatch(fd->get());
  }
  if (!is_running_) return;
  KillGroup();
  waitpid(pid_, nullptr, 0);
}

absl::Status ChildProcess::Watch(FileDescriptor pidfd,
                                 FileDescriptor output,
                                 FileDescriptor ready) {
  pidfd_ = std::move(pidfd);
  output_ = std::move(output);
  ready_ = std::move(ready);
  if (!pidfd_.is_open()) return StatusFromErrno(errno, "pidfd_open");
  absl::Status watched = loop_.Watch(pidfd_.get(), EPOLLIN, [this](uint32_t) { OnExit(); });
  watched.Update(loop_.Watch(output_.get(), EPOLLIN, [this](uint32_t) { OnOutput(); }));
  if (ready_.is_open())
    watched.Update(loop_.Watch(ready_.get(), EPOLLIN, [this](uint32_t) { OnReady(); }));
  return watched;
}

void ChildProcess::Signal(int signal) const {
  if (is_running_) kill(pid_, signal);
}

void ChildProcess::EndNow() const {
  if (!is_running_) return;
  sigval word{};
  word.sival_int = kUrgent;
  if (sigqueue(pid_, SIGTERM, word) != 0) kill(pid_, SIGTERM);  // too many signals are queued
}

void ChildProcess::KillGroup() const {
  kill(-pid_, SIGKILL);
}

void ChildProcess::OnOutput() {
  std::array<char, 8192> buffer;
  for (int reads = 0; reads < kReadsMax && output_.is_open(); ++reads) {
    const ssize_t got = read(output_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      loop_.Unwatch(output_.get());
      output_.Reset();
      break;
    }
    output_rest_.append(buffer.data(), static_cast<size_t>(got));
    PassLines();
  }
}

void ChildProcess::PassLines() {
  size_t begin = 0;
  for (size_t end = 0; (end = output_rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    PassLine(output_rest_.substr(begin, end - begin));
  output_rest_.erase(0, begin);
  output_rest_.erase(0, OverwrittenBytes(output_rest_));
  while (output_rest_.size() > kLineBytesMax) {
    has_passed_part_ = true;
    events_.on_output(output_rest_.substr(0, kLineBytesMax));
    output_rest_.erase(0, kLineBytesMax);
  }
  if (output_rest_.empty()) {
    loop_.Cancel(std::exchange(part_timer_, 0));
  } else if (part_timer_ == 0) {
    part_timer_ = loop_.RunAfter(kPartPeriod, [this] { PassPart(); });
  }
}

void ChildProcess::PassLine(const std::string& line) {
  const std::string text = Shown(line);
  const bool is_end_of_part = std::exchange(has_passed_part_, false) && text.empty();
  if (!is_end_of_part) events_.on_output(text);
}

void ChildProcess::PassPart() {
  part_timer_ = 0;
  const std::string text = Shown(output_rest_);
  // A bar that was wiped out, or the indentation of what comes next.
  if (text.find_first_not_of(' ') == std::string::npos) return;
  output_rest_.clear();
  has_passed_part_ = true;
  events_.on_output(text);
}

void ChildProcess::OnReady() {
  std::array<char, 512> buffer;
  const ssize_t got = read(ready_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) ready_text_.append(buffer.data(), static_cast<size_t>(got));
  const size_t end = ready_text_.find('\n');
  const bool is_whole = end != std::string::npos;
  if (!is_whole && got > 0 && ready_text_.size() < kLineBytesMax) return;
  loop_.Unwatch(ready_.get());
  ready_.Reset();
  if (is_whole) events_.on_ready(ready_text_.substr(0, end));
}

void ChildProcess::OnExit() {
  siginfo_t info{};
  // Peeks first and reaps after the kill: until then no other group can have this number.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return;
  KillGroup();  // what it started in its group must not outlive it
  waitpid(pid_, nullptr, 0);
  is_running_ = false;
  loop_.Unwatch(pidfd_.get());
  OnOutput();
  if (output_.is_open()) loop_.Unwatch(output_.get());
  output_.Reset();
  loop_.Cancel(part_timer_);
  PassPart();
  const bool has_exited = info.si_code == CLD_EXITED;
  events_.on_end(
      {.exit_code = has_exited ? info.si_status : 0, .signal = has_exited ? 0 : info.si_status});
}

}  // namespace pushpull
