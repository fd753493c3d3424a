// SPDX-License-Identifier: Apache-2.0
//
// What a child process did, for a test to wait for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/local/process.h"

namespace pushpull {

// Runs `task` on the loop and waits for it.
inline void RunOn(EventLoop& loop, const std::function<void()>& task) {
  Mutex mu;
  CondVar changed;
  bool is_done = false;
  loop.Post([&] {
    task();
    MutexLock lock(mu);
    is_done = true;
    changed.NotifyAll();
  });
  MutexLock lock(mu);
  while (!is_done) changed.WaitUntil(mu, Deadline::After(std::chrono::seconds(10)));
}

// Fails the test when what it waits for does not come within 30 s. Thread-safe.
class ProcessRecorder {
 public:
  ProcessEvents Events() {
    return {.on_forked = [this](pid_t group) { Note([&] { group_ = group; }); },
            .on_output = [this](const std::string& line) { Note([&] { lines_.push_back(line); }); },
            .on_ready = [this](const std::string& line) { Note([&] { ready_ = line; }); },
            .on_end = [this](const ProcessEnd& end) { Note([&] { end_ = end; }); }};
  }

  ProcessEnd AwaitEnd() {
    Await([this] { return end_.has_value(); });
    MutexLock lock(mu_);
    return end_.value_or(ProcessEnd{});
  }
  std::string AwaitReady() {
    Await([this] { return !ready_.empty(); });
    MutexLock lock(mu_);
    return ready_;
  }
  // The first line that holds `text`.
  std::string AwaitLine(const std::string& text) {
    std::string found;
    Await([&] {
      for (const std::string& line : lines_) {
        if (found.empty() && line.find(text) != std::string::npos) found = line;
      }
      return !found.empty();
    });
    return found;
  }

  std::vector<std::string> lines() {
    MutexLock lock(mu_);
    return lines_;
  }
  // All lines as one text.
  std::string output() {
    std::string all;
    for (const std::string& line : lines()) all += line + "\n";
    return all;
  }
  pid_t group() {
    MutexLock lock(mu_);
    return group_;
  }

 private:
  template <typename Change>
  void Note(Change change) {
    MutexLock lock(mu_);
    change();
    changed_.NotifyAll();
  }
  template <typename Condition>
  void Await(Condition is_true) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(30));
    MutexLock lock(mu_);
    while (!is_true()) {
      if (changed_.WaitUntil(mu_, deadline) || is_true()) continue;
      ADD_FAILURE() << "did not happen within 30 s";
      return;
    }
  }

  CondVar changed_;
  Mutex mu_;
  // Guarded by mu_; the conditions of Await read them where the analysis cannot follow.
  std::vector<std::string> lines_;
  std::string ready_;
  std::optional<ProcessEnd> end_;
  pid_t group_ = 0;
};

}  // namespace pushpull
