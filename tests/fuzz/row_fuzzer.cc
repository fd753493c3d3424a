// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as rows that a peer pushes, and as the image of a chunk's rows: no crash, what is
// refused says why and changes nothing, and of what is accepted the image gives the same table.
// Input: the dimension, the optimizer, whether keys and sizes are made right, then the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/store/row_table.h"

namespace {

using pushpull::HostBuffer;

bool AreEqual(const pushpull::RowImage& a, const pushpull::RowImage& b) {
  return std::ranges::equal(a.header.bytes(), b.header.bytes()) &&
         std::ranges::equal(a.rows.bytes(), b.rows.bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kPrefix = 3;
  if (size < kPrefix) return 0;
  const size_t dim = 1 + data[0] % 4;
  const auto kind = static_cast<pushpull::OptimizerKind>(2 + data[1] % 4);
  const bool is_made_right = data[2] % 2 == 1;
  pushpull::TensorSpec spec;
  spec.name = "fuzz";
  spec.dims = {100, static_cast<int64_t>(dim)};
  spec.optimizer = {.kind = kind, .learning_rate = 0.1};
  spec.rows = pushpull::RowSpec{.evict_after = data[2] % 5U};
  HostBuffer bytes = *HostBuffer::Uninitialized(size - kPrefix);
  std::transform(data + kPrefix, data + size, bytes.bytes().begin(), [](uint8_t byte) {
    return std::byte{byte};
  });
  if (is_made_right) {
    bytes = *HostBuffer::Zeroed(bytes.num_bytes() / pushpull::SparseRowBytes(dim) *
                                pushpull::SparseRowBytes(dim));
    std::copy_n(
        data + kPrefix, bytes.num_bytes(), reinterpret_cast<uint8_t*>(bytes.bytes().data()));
    const pushpull::MutableSparseRows rows = pushpull::SplitSparseRows(bytes.bytes(), dim);
    for (size_t i = 0; i < rows.keys.size(); ++i) rows.keys[i] = i * 3;
  }

  pushpull::RowTable table(spec, 0, 1);
  const absl::Status installed = table.Install({});
  PUSHPULL_CHECK(installed.ok());
  const absl::Status applied =
      table.Apply(bytes.bytes(), {.learning_rate = 0.1}, pushpull::Step{1});
  PUSHPULL_CHECK(applied.ok() || (!is_made_right && !applied.message().empty()));
  PUSHPULL_CHECK(applied.ok() || table.num_rows() == 0);
  table.Evict(pushpull::Step{2});
  const pushpull::RowImage image = *table.Image();
  pushpull::RowTable copy(spec, 0, 1);
  PUSHPULL_CHECK(copy.Restore(image.header.bytes(), image.rows.bytes()).ok());
  PUSHPULL_CHECK(AreEqual(*copy.Image(), image));

  HostBuffer header = *HostBuffer::Zeroed(pushpull::kRowHeaderBytes);
  std::copy_n(bytes.bytes().begin(),
              std::min(bytes.num_bytes(), header.num_bytes()),
              header.bytes().begin());
  const absl::Status restored = copy.Restore(header.bytes(), bytes.bytes());
  if (!restored.ok()) PUSHPULL_CHECK(AreEqual(*copy.Image(), image));
  return 0;
}
