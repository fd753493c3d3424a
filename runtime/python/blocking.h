// SPDX-License-Identifier: Apache-2.0
//
// Waiting as a Python program expects it: without the interpreter lock, and Ctrl-C interrupts it.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

namespace pushpull::python {

// Becomes pushpull.PushPullError.
class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status)
      : status_(std::move(status)), text_(status_.message()) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const absl::Status& status() const { return status_; }

 private:
  const absl::Status status_;
  const std::string text_;
};

inline void Check(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

// How long a wait lasts before it checks for signals.
constexpr std::chrono::milliseconds kSlice{50};

// `seconds` as a deadline; none: the library ends the wait when those that are waited for are gone.
// nanobind::value_error unless it is a non-negative number.
inline Deadline DeadlineAfter(std::optional<double> seconds) {
  constexpr double kLongest = 1e8;  // three years; more does not fit the clock
  if (seconds && !(*seconds >= 0))
    throw nanobind::value_error("timeout: expected seconds, 0 or more, or None");
  return Deadline::After(FromSeconds(std::min(seconds.value_or(kLongest), kLongest)));
}

// Runs the handlers of pending signals. Throws what they raise, such as KeyboardInterrupt.
inline void RunSignalHandlers() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Calls `wait`, which may be called again after kDeadlineExceeded, until it returns something else
// or `deadline` has passed. Returns its last status.
template <typename Wait>
absl::Status WaitInSlices(Deadline deadline, const Wait& wait) {
  while (true) {
    const Deadline slice(std::min(deadline.when(), Deadline::After(kSlice).when()));
    const absl::Status status = [&] {
      const nanobind::gil_scoped_release release;
      return wait(slice);
    }();
    RunSignalHandlers();
    if (!absl::IsDeadlineExceeded(status) || !slice.has_passed() || deadline.has_passed())
      return status;
  }
}

// For calls that cannot be repeated and therefore run in a thread. If a signal handler raises,
// `interrupt` is called first.
template <typename Result, typename Interrupt>
void WaitInSlices(std::future<Result>& done, const Interrupt& interrupt) {
  auto state = std::future_status::timeout;
  while (state != std::future_status::ready) {
    {
      const nanobind::gil_scoped_release release;
      state = done.wait_for(kSlice);
    }
    try {
      RunSignalHandlers();
    } catch (...) {
      interrupt();
      throw;
    }
  }
}

}  // namespace pushpull::python
