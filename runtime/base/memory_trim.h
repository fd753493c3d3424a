// SPDX-License-Identifier: Apache-2.0
//
// Gives memory back to the system that this process has freed and its allocator keeps: after a
// flood of connections a role would otherwise stay as large as it was at its peak.
#pragma once

#include "runtime/base/executor.h"

namespace pushpull {

// The allocator keeps what any thread has freed in one place, where the next one finds it, instead
// of one for each: less memory, and threads that allocate much wait for each other. To be called
// before other threads are there.
void ShareFreedMemory();

// Once a `period` for as long as `executor` runs tasks. Memory that comes and goes all the time
// costs a page fault for each 4 KiB and period. Thread-safe.
void TrimMemoryEvery(Duration period, Executor& executor);

}  // namespace pushpull
