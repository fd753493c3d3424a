// SPDX-License-Identifier: Apache-2.0
//
// Rows of a row-sparse tensor in the form in which they travel.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

using RowsByKey = std::map<uint64_t, std::vector<float>>;

inline HostBuffer EncodeRows(const RowsByKey& rows, size_t dim) {
  HostBuffer buffer = *HostBuffer::Uninitialized(rows.size() * SparseRowBytes(dim));
  const MutableSparseRows out = SplitSparseRows(buffer.bytes(), dim);
  size_t i = 0;
  for (const auto& [key, values] : rows) {
    out.keys[i] = key;
    std::ranges::copy(values, out.values.begin() + static_cast<ptrdiff_t>(i++ * dim));
  }
  return buffer;
}

inline RowsByKey DecodeRows(const HostBuffer& buffer, size_t dim) {
  const SparseRows parsed = *ParseSparseRows(buffer.bytes(), dim);
  RowsByKey rows;
  for (size_t i = 0; i < parsed.keys.size(); ++i) {
    const std::span<const float> row = parsed.values.subspan(i * dim, dim);
    rows[parsed.keys[i]] = {row.begin(), row.end()};
  }
  return rows;
}

}  // namespace pushpull
