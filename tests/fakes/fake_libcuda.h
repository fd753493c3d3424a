// SPDX-License-Identifier: Apache-2.0
//
// What another stand-in that is a library needs of libcuda.so.1's.
#pragma once

#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {

// The one driver of the process. Lives as long as the process.
FakeCudaDriver& StandInDriver();

}  // namespace pushpull
