// SPDX-License-Identifier: Apache-2.0
//
// Adds the rows of one contribution to those of others, key by key. Pure.
#pragma once

#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

// Returns sum + scale x contribution: the rows of both, in the form of ParseSparseRows, which both
// have. Rows that only the contribution has are scaled, others of the sum stay as they are.
// Memory that cannot be had ends the process, as that of any container.
HostBuffer AddSparseRows(const HostBuffer& sum,
                         const HostBuffer& contribution,
                         size_t dim,
                         float scale);

}  // namespace pushpull
