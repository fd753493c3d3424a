// SPDX-License-Identifier: Apache-2.0
//
// Returns memory to the system that this process has freed but its allocator keeps: otherwise a
// role would stay at its peak size after a flood of connections.
#pragma once

#include "runtime/base/executor.h"

namespace pushpull {

// Makes the allocator use one arena for all threads instead of one each: uses less memory, but
// threads that allocate much wait for each other. Call it before other threads exist.
void ShareFreedMemory();

// Trims once per `period` for as long as `executor` runs tasks. Memory that is freed and allocated
// all the time costs a page fault per 4 KiB and period. Thread-safe.
void TrimMemoryEvery(Duration period, Executor& executor);

}  // namespace pushpull
