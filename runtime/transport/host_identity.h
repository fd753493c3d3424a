// SPDX-License-Identifier: Apache-2.0
//
// Identifies the machine and clock of a process: processes with the same identity read the same
// steady clock, so no offset needs to be estimated between them.
#pragma once

#include <cstdint>

namespace pushpull {

// The same number in all processes that share this boot of the machine and this time namespace, a
// different one in all others. Random where the kernel does not tell, so that two hosts are never
// taken for one. Reads two small files.
uint64_t HostIdentity();

}  // namespace pushpull
