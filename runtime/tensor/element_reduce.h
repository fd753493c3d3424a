// SPDX-License-Identifier: Apache-2.0
//
// Reduces arrays element by element, for collectives over servers and between ranks. Equal input
// gives equal bits on every machine, except for a NaN's payload. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pushpull {

// An array's element type. The values are part of messages between processes and never change.
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

// How two elements are combined. All operations are commutative. Integer operations, minimum,
// maximum, and and or are associative; floating-point sums and products are too, except for
// rounding. The values are part of messages between processes and never change.
enum class ElementOp : uint8_t {
  kMean = 1,     // a sum until FinishReduction; integer means round toward zero
  kSum = 2,      // integers wrap around
  kMin = 3,      // NaN if either is NaN
  kMax = 4,      // likewise
  kProduct = 5,  // integers wrap around
  kAnd = 6,      // logical: 1 if both are nonzero, else 0; a NaN is nonzero
  kOr = 7,       // 1 if either is nonzero, else 0
};

size_t ElementBytes(ElementKind kind);

// "float32", "bfloat16", ...; "sum", "mean", ...
std::string ToString(ElementKind kind);
std::string ToString(ElementOp op);

// into = into `op` from. Sums and products of float16 and bfloat16 are computed in float32 and
// rounded once. The spans have equal length, a whole number of elements, are aligned for them, and
// do not overlap.
void Reduce(ElementKind kind,
            ElementOp op,
            std::span<std::byte> into,
            std::span<const std::byte> from);

// Whether FinishReduction does anything.
constexpr bool NeedsFinish(ElementOp op, size_t count) {
  return op == ElementOp::kMean || (count == 1 && (op == ElementOp::kAnd || op == ElementOp::kOr));
}

// Completes a reduction of `count` arrays: divides a mean and, for `and` and `or`, turns the
// elements of a single array into 0 and 1.
void FinishReduction(ElementKind kind, ElementOp op, size_t count, std::span<std::byte> values);

// into = into `op` each of `others`, in their order, and finished. float16 and bfloat16 are rounded
// once, at the end. Otherwise as Reduce and FinishReduction.
void ReduceAll(ElementKind kind,
               ElementOp op,
               std::span<std::byte> into,
               std::span<const std::span<const std::byte>> others);

// Fills `values` with the operation's identity: 0 for a sum and a mean, 1 for a product, the
// largest value (infinity) for a minimum.
void FillIdentity(ElementKind kind, ElementOp op, std::span<std::byte> values);

}  // namespace pushpull
