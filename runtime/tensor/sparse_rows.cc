// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/sparse_rows.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Uniform in [0, 1), with the 53 bits of a double.
double Fraction(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// As many as give a sum of variance 1 (each has 1/12). No logarithm or cosine, whose bits might
// differ between members built with different C libraries.
constexpr int kSummands = 12;

double Normal(uint64_t state) {
  double sum = -kSummands / 2.0;
  for (int i = 0; i < kSummands; ++i) sum += Fraction(MixBits(state + static_cast<uint64_t>(i)));
  return sum;
}

}  // namespace

// The finalizer of SplitMix64. Source: Steele, Lea, Flood, OOPSLA 2014.
uint64_t MixBits(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

absl::StatusOr<std::span<const uint64_t>> ParseRowKeys(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(uint64_t) != 0)
    return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no list of keys"));
  const std::span<const uint64_t> keys{reinterpret_cast<const uint64_t*>(bytes.data()),
                                       bytes.size() / sizeof(uint64_t)};
  const auto wrong = std::ranges::adjacent_find(keys, std::greater_equal<>());
  if (wrong == keys.end()) return keys;
  return absl::InvalidArgumentError(
      absl::StrCat("the keys must ascend, ", *(wrong + 1), " follows ", *wrong));
}

absl::StatusOr<SparseRows> ParseSparseRows(std::span<const std::byte> bytes, size_t dim) {
  const size_t num_rows = bytes.size() / SparseRowBytes(dim);
  if (bytes.size() % SparseRowBytes(dim) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes are no rows of a key and ", dim, " values each"));
  }
  const size_t key_bytes = num_rows * sizeof(uint64_t);
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<const uint64_t> keys,
                            ParseRowKeys(bytes.first(key_bytes)));
  return SparseRows{keys,
                    {reinterpret_cast<const float*>(bytes.data() + key_bytes), num_rows * dim}};
}

MutableSparseRows SplitSparseRows(std::span<std::byte> bytes, size_t dim) {
  const size_t num_rows = bytes.size() / SparseRowBytes(dim);
  return {{reinterpret_cast<uint64_t*>(bytes.data()), num_rows},
          {reinterpret_cast<float*>(bytes.data() + num_rows * sizeof(uint64_t)), num_rows * dim}};
}

void InitializeRow(const RowSpec& spec, uint64_t key, std::span<float> row) {
  if (spec.init == RowInit::kZeros) {
    std::ranges::fill(row, 0.0F);
    return;
  }
  uint64_t state = MixBits(MixBits(spec.seed) ^ key);
  for (float& value : row) {
    state = MixBits(state);
    const double drawn =
        spec.init == RowInit::kUniform ? 2 * Fraction(MixBits(state)) - 1 : Normal(state);
    value = static_cast<float>(spec.scale * drawn);
  }
}

}  // namespace pushpull
