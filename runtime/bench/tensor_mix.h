// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a benchmark's gradient has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// "160M", "4K", "1Ki", "1024": bytes; K, M and G are powers of 1,000, Ki, Mi and Gi powers of
// 1,024. kInvalidArgument: something else, or 0.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// The number of float32 values in each tensor, in the order of pushing; `total_bytes` in all.
//
// mix: "mixed", the 160 tensors of an image model (4 x 16 MB, 16 x 4 MB, 16 x 1 MB, 60 x 250 KB, 12
// x 64 KB, 8 x 16 KB, 20 x 4 KB, 24 x 1 KB if they have 160 MB in all, otherwise scaled), in a
// fixed mixed order; or a size as ParseBytes takes it: tensors of that size, the last one with the
// remainder. kInvalidArgument names what does not fit.
absl::StatusOr<std::vector<uint64_t>> MakeTensors(absl::string_view mix, uint64_t total_bytes);

// How many messages with values a worker pushes, and pulls, in a step: one per chunk.
uint64_t CountChunks(std::span<const uint64_t> tensors);

}  // namespace pushpull
