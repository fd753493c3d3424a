// SPDX-License-Identifier: Apache-2.0
//
// Whether two processes read the same steady clock: then nothing has to be estimated between them.
#pragma once

#include <cstdint>

namespace pushpull {

// The same number in all processes that share this boot of the machine and this time namespace,
// another one in all others. Drawn at random where the kernel does not tell, so that a process is
// never taken for a neighbour of a stranger. Reads two small files.
uint64_t HostIdentity();

}  // namespace pushpull
