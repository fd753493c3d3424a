// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "runtime/base/check.h"

namespace pushpull {

Interrupt::Interrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PUSHPULL_CHECK(event_.is_open());
}

void Interrupt::Set() {
  is_set_.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  // The counter can be full only if it is already readable.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

void Interrupt::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof count);
  is_set_.store(false, std::memory_order_relaxed);
}

}  // namespace pushpull
