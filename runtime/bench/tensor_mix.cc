// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/tensor_mix.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "runtime/base/check.h"
#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

struct SizeClass {
  uint64_t bytes;
  uint64_t count;
};

constexpr std::array<SizeClass, 8> kMixed = {{{16'000'000, 4},
                                              {4'000'000, 16},
                                              {1'000'000, 16},
                                              {250'000, 60},
                                              {64'000, 12},
                                              {16'000, 8},
                                              {4'000, 20},
                                              {1'000, 24}}};
constexpr uint64_t kMixedBytes = 160'000'000;
constexpr uint64_t kMixedTensors = 160;
// Below that, rounding to whole values would no longer leave a mix.
constexpr uint64_t kMixedBytesMin = 16'000;
// Coprime to the number of tensors, so that every tensor gets a place.
constexpr uint64_t kMixedStride = 67;
static_assert(std::gcd(kMixedStride, kMixedTensors) == 1);

constexpr uint64_t kTensorsMax = 1'000'000;

// 0 if there is no such unit.
uint64_t UnitOf(absl::string_view unit) {
  constexpr std::array<std::pair<absl::string_view, uint64_t>, 7> kUnits = {
      {{"", 1},
       {"K", 1'000},
       {"M", 1'000'000},
       {"G", 1'000'000'000},
       {"Ki", uint64_t{1} << 10},
       {"Mi", uint64_t{1} << 20},
       {"Gi", uint64_t{1} << 30}}};
  for (const auto& [name, bytes] : kUnits) {
    if (name == unit) return bytes;
  }
  return 0;
}

std::vector<uint64_t> MakeMixed(uint64_t total_values) {
  std::vector<uint64_t> sorted;
  const double scale = static_cast<double>(total_values) * sizeof(float) / kMixedBytes;
  for (const SizeClass& size : kMixed) {
    const double values = static_cast<double>(size.bytes) / sizeof(float) * scale;
    sorted.insert(sorted.end(), size.count, std::max<uint64_t>(1, static_cast<uint64_t>(values)));
  }
  PUSHPULL_CHECK(sorted.size() == kMixedTensors);
  // The first and largest tensor absorbs the rounding.
  const uint64_t others = std::accumulate(sorted.begin() + 1, sorted.end(), uint64_t{0});
  PUSHPULL_CHECK(others < total_values);
  sorted.front() = total_values - others;
  std::vector<uint64_t> tensors(kMixedTensors);
  for (uint64_t i = 0; i < kMixedTensors; ++i)
    tensors[i * kMixedStride % kMixedTensors] = sorted[i];
  return tensors;
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<size_t>(end - text.data());
  const uint64_t unit = UnitOf(text.substr(digits));
  const bool is_in_range = error == std::errc() && number > 0 && unit > 0 &&
                           number <= std::numeric_limits<uint64_t>::max() / unit;
  if (is_in_range) return number * unit;
  return absl::InvalidArgumentError(
      absl::StrCat("must be bytes such as 160M, 4K or 1Ki, is \"", text, "\""));
}

absl::StatusOr<std::vector<uint64_t>> MakeTensors(absl::string_view mix, uint64_t total_bytes) {
  if (total_bytes % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes: must be a multiple of 4 (float32), is ", total_bytes));
  }
  const uint64_t total_values = total_bytes / sizeof(float);
  if (mix == "mixed") {
    if (total_bytes >= kMixedBytesMin) return MakeMixed(total_values);
    return absl::InvalidArgumentError(absl::StrCat(
        "bytes: must be at least ", kMixedBytesMin, " for mixed tensors, is ", total_bytes));
  }
  const absl::StatusOr<uint64_t> bytes = ParseBytes(mix);
  if (!bytes.ok() || *bytes % sizeof(float) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensors: must be mixed or a multiple of 4 bytes such as 4K, is \"", mix, "\""));
  }
  const uint64_t values = std::min(*bytes / sizeof(float), total_values);
  const uint64_t count = (total_values + values - 1) / values;
  if (count > kTensorsMax) {
    constexpr absl::string_view kText =
        "tensors: $0 of $1 bytes; there may be $2: push fewer bytes";
    return absl::InvalidArgumentError(absl::Substitute(kText, count, mix, kTensorsMax));
  }
  std::vector<uint64_t> tensors(count, values);
  tensors.back() = total_values - (count - 1) * values;
  return tensors;
}

uint64_t CountChunks(std::span<const uint64_t> tensors) {
  uint64_t chunks = 0;
  for (const uint64_t values : tensors)
    chunks += (values * sizeof(float) + kChunkBytes - 1) / kChunkBytes;
  return chunks;
}

}  // namespace pushpull
