// SPDX-License-Identifier: Apache-2.0
//
// How many threads LibTorch and the linear algebra below it may use.
#pragma once

namespace pushpull {

// Call before the first tensor operation. `threads` above 0. The number of threads decides in which
// order sums are made, so it is part of what makes two runs equal bit by bit.
void SetComputeThreads(int threads);

}  // namespace pushpull
