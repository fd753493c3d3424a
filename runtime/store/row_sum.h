// SPDX-License-Identifier: Apache-2.0
//
// Adds the rows of one contribution to those of others, key by key. Pure.
#pragma once

#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

// Returns sum + scale x contribution with the rows of both; all three are in the form of
// ParseSparseRows. Rows that only the contribution has are scaled, rows that only the sum has stay
// as they are.
// Running out of memory ends the process, as it does for any container.
HostBuffer AddSparseRows(const HostBuffer& sum,
                         const HostBuffer& contribution,
                         size_t dim,
                         float scale);

}  // namespace pushpull
