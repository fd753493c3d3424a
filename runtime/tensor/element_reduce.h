// SPDX-License-Identifier: Apache-2.0
//
// Reduces arrays element by element: of collectives over servers and between ranks. Equal input
// gives equal bits on every machine, a NaN's payload aside. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pushpull {

// What an array has. The values are part of messages between processes: they never change.
enum class ElementKind : uint8_t {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kInt8 = 6,
  kFloat16 = 7,   // IEEE 754 binary16
  kBFloat16 = 8,  // the upper half of a float32
};

// How two elements become one. All of them are commutative; those of integers, minimum, maximum,
// and and or are associative, sums and products of floating point values but for their rounding.
// The values are part of messages between processes: they never change.
enum class ElementOp : uint8_t {
  kMean = 1,     // a sum until FinishReduction; that of integers is rounded towards zero
  kSum = 2,      // integers wrap around
  kMin = 3,      // NaN where either is NaN
  kMax = 4,      // likewise
  kProduct = 5,  // integers wrap around
  kAnd = 6,      // logical: 1 where both differ from 0, else 0; a NaN differs from 0
  kOr = 7,       // 1 where one differs from 0, else 0
};

size_t ElementBytes(ElementKind kind);

// "float32", "bfloat16", ...; "sum", "mean", ...
std::string ToString(ElementKind kind);
std::string ToString(ElementOp op);

// into = into `op` from. Sums and products of float16 and bfloat16 are computed in float32 and
// rounded once. The spans are equally long, a whole number of elements, aligned for them, and do
// not overlap.
void Reduce(ElementKind kind,
            ElementOp op,
            std::span<std::byte> into,
            std::span<const std::byte> from);

// Whether FinishReduction does anything.
constexpr bool NeedsFinish(ElementOp op, size_t count) {
  return op == ElementOp::kMean || (count == 1 && (op == ElementOp::kAnd || op == ElementOp::kOr));
}

// Makes the result of what was reduced from `count` arrays: divides a mean, and turns the elements
// of a single array into 0 and 1 for and, or.
void FinishReduction(ElementKind kind, ElementOp op, size_t count, std::span<std::byte> values);

// Fills `values` with what changes nothing when it is reduced: 0 for a sum and a mean, 1 for a
// product, the largest value (infinity) for a minimum.
void FillIdentity(ElementKind kind, ElementOp op, std::span<std::byte> values);

}  // namespace pushpull
