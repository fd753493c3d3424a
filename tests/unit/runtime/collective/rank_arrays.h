// SPDX-License-Identifier: Apache-2.0
//
// Arrays of ranks, and what must become of them: exactly, or within the bound of reduction_op.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/collective/schedule.h"
#include "runtime/tensor/element_reduce.h"
#include "runtime/tensor/half_float.h"

namespace pushpull {

using RankArrays = std::vector<std::vector<std::byte>>;

inline bool IsFloatingPoint(ElementKind kind) {
  return kind == ElementKind::kFloat32 || kind == ElementKind::kFloat64 ||
         kind == ElementKind::kFloat16 || kind == ElementKind::kBFloat16;
}

// u of reduction_op.h.
inline double UnitRoundoff(ElementKind kind) {
  switch (kind) {
    case ElementKind::kFloat64:
      return 0x1p-53;
    case ElementKind::kFloat16:
      return 0x1p-11;
    case ElementKind::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

inline double ElementAt(ElementKind kind, std::span<const std::byte> array, uint64_t index) {
  const std::span<const std::byte> element =
      array.subspan(index * ElementBytes(kind), ElementBytes(kind));
  if (kind == ElementKind::kFloat64) {
    double value = 0;
    std::memcpy(&value, element.data(), sizeof value);
    return value;
  }
  float value = 0;
  if (kind == ElementKind::kFloat16) {
    DecodeFloat16(element, std::span(&value, 1));
  } else if (kind == ElementKind::kBFloat16) {
    DecodeBFloat16(element, std::span(&value, 1));
  } else {
    std::memcpy(&value, element.data(), sizeof value);
  }
  return value;
}

// Floating point elements have magnitudes from 0.5 to 1.5, so that products of eight neither
// overflow nor underflow; every fifth element of the others is 0, so that and, or differ.
inline std::vector<std::byte> RandomArray(ElementKind kind, uint64_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> array(elements * ElementBytes(kind));
  if (!IsFloatingPoint(kind)) {
    for (std::byte& byte : array) byte = static_cast<std::byte>(random());
    for (uint64_t i = seed % 5; i < elements; i += 5)
      std::memset(array.data() + i * ElementBytes(kind), 0, ElementBytes(kind));
    return array;
  }
  std::uniform_real_distribution<float> magnitude(0.5F, 1.5F);
  for (uint64_t i = 0; i < elements; ++i) {
    const float value = random() % 2 == 0 ? magnitude(random) : -magnitude(random);
    const std::span<std::byte> place =
        std::span(array).subspan(i * ElementBytes(kind), ElementBytes(kind));
    if (kind == ElementKind::kFloat64) {
      const double wide = double{value} / 3;
      std::memcpy(place.data(), &wide, sizeof wide);
    } else if (kind == ElementKind::kFloat16) {
      EncodeFloat16(std::span(&value, 1), place);
    } else if (kind == ElementKind::kBFloat16) {
      EncodeBFloat16(std::span(&value, 1), place);
    } else {
      std::memcpy(place.data(), &value, sizeof value);
    }
  }
  return array;
}

inline RankArrays RandomArrays(ElementKind kind, size_t ranks, uint64_t elements) {
  RankArrays arrays;
  for (size_t rank = 0; rank < ranks; ++rank)
    arrays.push_back(RandomArray(kind, elements, static_cast<uint32_t>(rank + 1)));
  return arrays;
}

// Whether the result may differ from the exact one by a rounding.
inline bool IsRounded(ElementKind kind, ElementOp op) {
  return IsFloatingPoint(kind) &&
         (op == ElementOp::kSum || op == ElementOp::kMean || op == ElementOp::kProduct);
}

// What is wrong with elements `range` of a result that must be exact; empty: nothing.
inline std::string WrongWithExact(ElementKind kind,
                                  ElementOp op,
                                  const RankArrays& inputs,
                                  ElementRange range,
                                  std::span<const std::byte> result) {
  const size_t bytes = ElementBytes(kind);
  std::vector<std::byte> expected = inputs[0];
  for (size_t rank = 1; rank < inputs.size(); ++rank) Reduce(kind, op, expected, inputs[rank]);
  FinishReduction(kind, op, inputs.size(), expected);
  for (uint64_t i = range.begin; i < range.end; ++i) {
    if (std::memcmp(expected.data() + i * bytes, result.data() + i * bytes, bytes) != 0)
      return absl::StrCat("element ", i, " is not exact");
  }
  return "";
}

// An element as it should be, and how far it may be from that.
struct RoundedElement {
  long double exact = 0;
  long double bound = 0;
};

inline RoundedElement ExpectedElement(ElementKind kind,
                                      ElementOp op,
                                      const RankArrays& inputs,
                                      uint64_t index) {
  const double u = UnitRoundoff(kind);
  const auto n = static_cast<double>(inputs.size());
  const bool is_product = op == ElementOp::kProduct;
  long double exact = is_product ? 1 : 0;
  long double magnitudes = 0;
  for (const std::vector<std::byte>& input : inputs) {
    const long double x = ElementAt(kind, input, index);
    exact = is_product ? exact * x : exact + x;
    magnitudes += std::abs(x);
  }
  const long double bound = (n - 1) * u * (1 + n * u) * (is_product ? std::abs(exact) : magnitudes);
  if (op != ElementOp::kMean) return {exact, bound};
  return {exact / n, bound / n + u * (std::abs(exact / n) + bound)};
}

// What is wrong with elements `range` of `result`; empty: nothing.
inline std::string WrongWith(ElementKind kind,
                             ElementOp op,
                             const RankArrays& inputs,
                             ElementRange range,
                             std::span<const std::byte> result) {
  if (!IsRounded(kind, op)) return WrongWithExact(kind, op, inputs, range, result);
  for (uint64_t i = range.begin; i < range.end; ++i) {
    const RoundedElement expected = ExpectedElement(kind, op, inputs, i);
    const double found = ElementAt(kind, result, i);
    if (std::abs(found - expected.exact) <= expected.bound) continue;
    return absl::StrCat("element ",
                        i,
                        " is ",
                        found,
                        ", expected ",
                        static_cast<double>(expected.exact),
                        " +- ",
                        static_cast<double>(expected.bound));
  }
  return "";
}

}  // namespace pushpull
