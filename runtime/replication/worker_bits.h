// SPDX-License-Identifier: Apache-2.0
//
// A set of workers in the meta of a frame: the number of bytes as 16 bits, then one bit per worker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {

// Worker indices are below this.
constexpr uint32_t kWorkersMax = 16384;

// `workers` are ascending.
void PutWorkerBits(std::span<const WorkerId> workers, ByteWriter& writer);
// Ascending. False: the bytes end early or name more than kWorkersMax workers.
bool GetWorkerBits(ByteReader& reader, std::vector<WorkerId>& workers);

}  // namespace pushpull
