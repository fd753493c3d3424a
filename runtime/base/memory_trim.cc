// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/memory_trim.h"

#include <malloc.h>

#include <cstddef>

namespace pushpull {
namespace {

// What the allocator may keep: trimming less is not worth the page faults.
constexpr size_t kKeptBytes = size_t{8} << 20;

// Runs on the executor's thread, the only one that may set timers.
void Schedule(Duration period, Executor& executor) {
  executor.RunAfter(period, [period, &executor] {
    if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
    Schedule(period, executor);
  });
}

}  // namespace

void ShareFreedMemory() {
  mallopt(M_ARENA_MAX, 1);
}

void TrimMemoryEvery(Duration period, Executor& executor) {
  executor.Post([period, &executor] { Schedule(period, executor); });
}

}  // namespace pushpull
