// SPDX-License-Identifier: Apache-2.0
//
// How the arrays of ranks become one: by an operation of element_reduce.h, or by the program's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/tensor/element_reduce.h"

namespace pushpull {

// Elements of a program's own operation have at most so many bytes.
constexpr size_t kCustomElementBytesMax = 4096;

// A value; copying one of the program's own copies its function. Thread-compatible.
//
// Rounding of floating point values, with u the half of the distance from 1 to the next number
// (2^-24 float32, 2^-53 float64, 2^-11 float16, 2^-8 bfloat16), n ranks and values x of a place: a
// sum differs from the exact one by at most (n - 1) u S (1 + n u), S the sum of all |x|, a product
// by (n - 1) u (1 + n u) times the exact one's magnitude, unless it underflows; a mean by one
// rounding more. Minimum, maximum, and, or, and all of integers are exact.
class ReductionOp {
 public:
  // into = into combined with from, both a whole number of elements, as many. `from` is aligned to
  // the largest power of two that divides the size of an element, up to 64.
  using Combine = std::function<void(std::span<std::byte> into, std::span<const std::byte> from)>;

  ReductionOp(ElementKind kind, ElementOp op);

  // `combine` is commutative and associative and depends on nothing but its arguments; `identity`
  // is one element that changes no other one. Ranks that use the operation together give the same
  // name. kInvalidArgument: the identity has no bytes or more than kCustomElementBytesMax, or
  // combined with itself it gives something else.
  static absl::StatusOr<ReductionOp> Custom(std::string name,
                                            std::vector<std::byte> identity,
                                            Combine combine);

  // "float32 sum", or the program's name for it.
  const std::string& name() const { return name_; }
  size_t element_bytes() const { return element_bytes_; }
  // The same in all ranks that use the same operation.
  uint64_t fingerprint() const;

  void Reduce(std::span<std::byte> into, std::span<const std::byte> from) const;
  // See FinishReduction.
  bool NeedsFinish(size_t count) const;
  void Finish(size_t count, std::span<std::byte> values) const;
  // What a rank contributes that has nothing to contribute. `values` is a whole number of elements.
  void FillIdentity(std::span<std::byte> values) const;

 private:
  ReductionOp(std::string name, std::vector<std::byte> identity, Combine combine);

  std::string name_;
  size_t element_bytes_;
  ElementKind kind_ = ElementKind::kUint8;
  ElementOp op_ = ElementOp::kSum;
  std::vector<std::byte> identity_;
  Combine combine_;  // empty: that of kind_ and op_
};

}  // namespace pushpull
