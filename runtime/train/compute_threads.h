// SPDX-License-Identifier: Apache-2.0
//
// How many threads LibTorch and the linear algebra below it may use.
#pragma once

namespace pushpull {

// Call before the first tensor operation. `threads` above 0. The number of threads determines the
// order of sums, so runs with different numbers differ in their bits.
void SetComputeThreads(int threads);

}  // namespace pushpull
