// SPDX-License-Identifier: Apache-2.0
//
// How the ranks' arrays are combined: by an operation of element_reduce.h, or by the program's own.
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

// The most bytes in an element of a program's own operation.
constexpr size_t kCustomElementBytesMax = 4096;

// A value type; copying a program's own operation copies its function. Thread-compatible.
//
// Rounding of floating-point values, with u half the distance from 1 to the next number (2^-24
// float32, 2^-53 float64, 2^-11 float16, 2^-8 bfloat16), n ranks and values x at one position: a
// sum differs from the exact one by at most (n - 1) u S (1 + n u), S the sum of all |x|, a product
// by (n - 1) u (1 + n u) times the exact one's magnitude, unless it underflows; a mean has one more
// rounding. Minimum, maximum, and, or, and all operations on integers are exact.
class ReductionOp {
 public:
  // into = into combined with from, both the same whole number of elements. `from` is aligned to
  // the largest power of two that divides the size of an element, up to 64.
  using Combine = std::function<void(std::span<std::byte> into, std::span<const std::byte> from)>;

  ReductionOp(ElementKind kind, ElementOp op);

  // `combine` is commutative and associative and depends only on its arguments; `identity` is an
  // element that leaves every other one unchanged. Ranks that use the operation together give it
  // the same name. kInvalidArgument: the identity has no bytes or more than kCustomElementBytesMax,
  // or combining it with itself yields something else.
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
  // What a rank with nothing to contribute contributes. `values`: a whole number of elements.
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
