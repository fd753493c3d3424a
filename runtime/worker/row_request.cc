// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/row_request.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/reduce.h"

namespace pushpull {
namespace {

// The keys' positions, grouped by chunk and sorted by key within each; equal keys keep their order.
struct Order {
  std::vector<uint64_t> positions;  // [keys]
  std::vector<size_t> begins;       // [chunks + 1], into positions

  std::span<const uint64_t> Of(size_t chunk) const {
    return std::span(positions).subspan(begins[chunk], begins[chunk + 1] - begins[chunk]);
  }
};

Order OrderByChunk(std::span<const uint64_t> keys, uint64_t num_chunks) {
  Order order{.positions = std::vector<uint64_t>(keys.size()),
              .begins = std::vector<size_t>(num_chunks + 1)};
  for (const uint64_t key : keys) ++order.begins[ChunkOfRow(key, num_chunks) + 1];
  std::partial_sum(order.begins.begin(), order.begins.end(), order.begins.begin());
  std::vector<size_t> next(order.begins.begin(), order.begins.end() - 1);
  for (size_t i = 0; i < keys.size(); ++i)
    order.positions[next[ChunkOfRow(keys[i], num_chunks)]++] = i;
  const auto is_lower = [&](uint64_t a, uint64_t b) { return keys[a] < keys[b]; };
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    const auto begin = order.positions.begin() + static_cast<ptrdiff_t>(order.begins[chunk]);
    const auto end = order.positions.begin() + static_cast<ptrdiff_t>(order.begins[chunk + 1]);
    if (!std::is_sorted(begin, end, is_lower)) std::stable_sort(begin, end, is_lower);
  }
  return order;
}

size_t CountDistinct(std::span<const uint64_t> keys, std::span<const uint64_t> positions) {
  size_t count = 0;
  for (size_t i = 0; i < positions.size(); ++i)
    if (i == 0 || keys[positions[i]] != keys[positions[i - 1]]) ++count;
  return count;
}

absl::Status CheckSizes(const RowTensor& tensor, size_t keys, size_t values) {
  if (values == keys * tensor.dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 tensor.name,
                                                 "\": ",
                                                 keys,
                                                 " rows of ",
                                                 tensor.dim,
                                                 " values are ",
                                                 keys * tensor.dim,
                                                 " values, got ",
                                                 values));
}

absl::Status CheckCount(const RowTensor& tensor, size_t count) {
  if (count <= RowsPerChunkMax(tensor.dim)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("tensor \"",
                                                   tensor.name,
                                                   "\": ",
                                                   count,
                                                   " rows fall into one of its ",
                                                   tensor.num_chunks,
                                                   " chunks, the limit is ",
                                                   RowsPerChunkMax(tensor.dim),
                                                   ": register it with more rows than ",
                                                   tensor.rows));
}

}  // namespace

RowTensor RowTensorOf(const TensorSpec& spec) {
  return {.name = spec.name,
          .rows = static_cast<uint64_t>(spec.dims.front()),
          .dim = RowDim(spec),
          .num_chunks = NumRowChunks(spec)};
}

void RowRequest::Store(size_t part, std::span<const std::byte> answer) const {
  const size_t row_bytes = dim * sizeof(float);
  const std::span<std::byte> to = std::as_writable_bytes(out);
  for (const Place& place : parts[part].places)
    absl::c_copy(answer.subspan(place.from * row_bytes, row_bytes),
                 to.subspan(place.to * row_bytes, row_bytes).begin());
}

absl::StatusOr<std::shared_ptr<const RowRequest>> CutRowPush(const RowTensor& tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<const float> gradient) {
  PUSHPULL_RETURN_IF_ERROR(CheckSizes(tensor, keys.size(), gradient.size()));
  const Order order = OrderByChunk(keys, tensor.num_chunks);
  auto request = std::make_shared<RowRequest>();
  request->dim = tensor.dim;
  request->parts.resize(tensor.num_chunks);
  for (size_t chunk = 0; chunk < tensor.num_chunks; ++chunk) {
    const std::span<const uint64_t> positions = order.Of(chunk);
    const size_t count = CountDistinct(keys, positions);
    if (count == 0) continue;
    PUSHPULL_RETURN_IF_ERROR(CheckCount(tensor, count));
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer memory,
                              HostBuffer::Uninitialized(count * SparseRowBytes(tensor.dim)));
    const MutableSparseRows rows = SplitSparseRows(memory.bytes(), tensor.dim);
    size_t row = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const uint64_t key = keys[positions[i]];
      const std::span<const float> values = gradient.subspan(positions[i] * tensor.dim, tensor.dim);
      if (i > 0 && key == rows.keys[row - 1]) {
        AddScaled(rows.values.subspan((row - 1) * tensor.dim, tensor.dim), values, 1.0F);
        continue;
      }
      rows.keys[row] = key;
      absl::c_copy(values, rows.values.subspan(row++ * tensor.dim, tensor.dim).begin());
    }
    request->parts[chunk].sent = std::make_shared<const HostBuffer>(std::move(memory));
  }
  return request;
}

absl::StatusOr<std::shared_ptr<const RowRequest>> CutRowPull(const RowTensor& tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<float> out) {
  PUSHPULL_RETURN_IF_ERROR(CheckSizes(tensor, keys.size(), out.size()));
  const Order order = OrderByChunk(keys, tensor.num_chunks);
  auto request = std::make_shared<RowRequest>();
  request->dim = tensor.dim;
  request->out = out;
  request->asks_every_chunk = false;
  request->parts.resize(tensor.num_chunks);
  for (size_t chunk = 0; chunk < tensor.num_chunks; ++chunk) {
    const std::span<const uint64_t> positions = order.Of(chunk);
    const size_t count = CountDistinct(keys, positions);
    if (count == 0) continue;
    PUSHPULL_RETURN_IF_ERROR(CheckCount(tensor, count));
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer memory,
                              HostBuffer::Uninitialized(count * sizeof(uint64_t)));
    const std::span<uint64_t> asked = SplitSparseRows(memory.bytes(), 0).keys;
    RowRequest::Part& part = request->parts[chunk];
    part.answer_bytes = count * tensor.dim * sizeof(float);
    part.places.reserve(positions.size());
    size_t row = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const uint64_t key = keys[positions[i]];
      if (i == 0 || key != asked[row - 1]) asked[row++] = key;
      part.places.push_back({static_cast<uint32_t>(row - 1), positions[i]});
    }
    part.sent = std::make_shared<const HostBuffer>(std::move(memory));
  }
  return request;
}

absl::StatusOr<std::shared_ptr<const RowRequest>> CutFirstRows(const RowTensor& tensor,
                                                               std::span<const float> values) {
  std::vector<uint64_t> keys(values.size() / tensor.dim);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  return CutRowPush(tensor, keys, values);
}

std::shared_ptr<const RowRequest> AskForVersions(const RowTensor& tensor) {
  auto request = std::make_shared<RowRequest>();
  request->dim = tensor.dim;
  request->parts.resize(tensor.num_chunks);
  return request;
}

}  // namespace pushpull
