// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pushpull/deadline.h"

#include "runtime/base/mutex.h"

namespace pushpull {

// Passes time without the processor, as a program does while its accelerator computes.
inline void Pause(Duration duration) {
  Mutex mu;
  CondVar never;
  const Deadline end = Deadline::After(duration);
  MutexLock lock(mu);
  while (!end.has_passed()) never.WaitUntil(mu, end);
}

}  // namespace pushpull
