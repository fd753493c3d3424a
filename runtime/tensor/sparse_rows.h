// SPDX-License-Identifier: Apache-2.0
//
// Rows of a row-sparse tensor as sent and stored: ascending 64-bit keys, each once, then their
// values in the same order, in host byte order. Pure: from and to bytes
// (docs/decisions/0056-row-sparse-tensors.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

namespace pushpull {

// A view; does not own the memory.
struct SparseRows {
  std::span<const uint64_t> keys;  // ascending, each once
  std::span<const float> values;   // [keys, dim]
};

// Size of a row with its key.
constexpr size_t SparseRowBytes(size_t dim) {
  return sizeof(uint64_t) + dim * sizeof(float);
}

// `bytes` start at a multiple of 8.
// kInvalidArgument: not a whole number of rows of `dim` values, or the keys do not ascend.
absl::StatusOr<SparseRows> ParseSparseRows(std::span<const std::byte> bytes, size_t dim);
// Likewise, for keys alone.
absl::StatusOr<std::span<const uint64_t>> ParseRowKeys(std::span<const std::byte> bytes);

// The same for writing; the caller fills in the contents.
struct MutableSparseRows {
  std::span<uint64_t> keys;
  std::span<float> values;
};
// `bytes` are a whole number of rows.
MutableSparseRows SplitSparseRows(std::span<std::byte> bytes, size_t dim);

// Whether a value that a peer sent is a RowInit.
constexpr bool IsKnown(RowInit init) {
  return init >= RowInit::kZeros && init <= RowInit::kNormal;
}

// Sets `row`, which has dim values, to the value of a row that nobody has pushed. The same bits
// everywhere.
void InitializeRow(const RowSpec& spec, uint64_t key, std::span<float> row);

// A number that depends on all bits of `value`, as uniformly distributed as a random one.
uint64_t MixBits(uint64_t value);

}  // namespace pushpull
