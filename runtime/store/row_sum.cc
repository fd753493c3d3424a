// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_sum.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

#include "runtime/base/check.h"
#include "runtime/tensor/reduce.h"

namespace pushpull {
namespace {

SparseRows Parse(const HostBuffer& rows, size_t dim) {
  const absl::StatusOr<SparseRows> parsed = ParseSparseRows(rows.bytes(), dim);
  PUSHPULL_CHECK(parsed.ok());
  return *parsed;
}

size_t CountBoth(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  size_t common = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) ++common;
    const bool is_first = *x <= *y;
    const bool is_second = *y <= *x;
    if (is_first) ++x;
    if (is_second) ++y;
  }
  return common;
}

}  // namespace

HostBuffer AddSparseRows(const HostBuffer& sum,
                         const HostBuffer& contribution,
                         size_t dim,
                         float scale) {
  const SparseRows a = Parse(sum, dim);
  const SparseRows b = Parse(contribution, dim);
  const size_t num_rows = a.keys.size() + b.keys.size() - CountBoth(a.keys, b.keys);
  absl::StatusOr<HostBuffer> memory = HostBuffer::Zeroed(num_rows * SparseRowBytes(dim));
  PUSHPULL_CHECK(memory.ok());
  const MutableSparseRows both = SplitSparseRows(memory->bytes(), dim);
  size_t i = 0;
  size_t j = 0;
  for (size_t out = 0; out < num_rows; ++out) {
    const bool has_a = i < a.keys.size() && (j == b.keys.size() || a.keys[i] <= b.keys[j]);
    const bool has_b = j < b.keys.size() && (i == a.keys.size() || b.keys[j] <= a.keys[i]);
    const std::span<float> row = both.values.subspan(out * dim, dim);
    both.keys[out] = has_a ? a.keys[i] : b.keys[j];
    if (has_a) absl::c_copy(a.values.subspan(i++ * dim, dim), row.begin());
    if (has_b) AddScaled(row, b.values.subspan(j++ * dim, dim), scale);
  }
  return *std::move(memory);
}

}  // namespace pushpull
