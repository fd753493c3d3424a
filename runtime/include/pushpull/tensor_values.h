// SPDX-License-Identifier: Apache-2.0
//
// A tensor's values in the program's memory, with their type. Made from anything that converts to a
// span of float, or from bytes and their type:
//
//   job->PushPull("w", gradient, w, {});  // two std::vector<float>
//   job->PushPull("h", {DType::kBFloat16, gradient_bytes}, {DType::kBFloat16, h_bytes}, {});
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "pushpull/tensor_spec.h"

namespace pushpull {

// Refers to memory owned by the caller. `Byte` is std::byte or const std::byte. A value type,
// freely copied; containers of floats convert to it, so programs need not name it.
template <typename Byte>
class BasicTensorValues {
 public:
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;

  BasicTensorValues() = default;  // no values, float32
  // `bytes`: row-major, aligned for `dtype`, a whole number of elements.
  BasicTensorValues(DType dtype, std::span<Byte> bytes) : dtype_(dtype), bytes_(bytes) {}
  template <typename Floats>
  requires std::constructible_from<std::span<Float>, Floats &&>
  // Stands in for a span of float, to which no other BasicTensorValues converts.
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): a span
  BasicTensorValues(Floats&& values)
      : BasicTensorValues(std::span<Float>(std::forward<Floats>(values))) {}
  // NOLINTNEXTLINE(google-explicit-constructor): likewise
  BasicTensorValues(std::span<Float> values)
      : bytes_(reinterpret_cast<Byte*>(values.data()), values.size_bytes()) {}

  template <std::same_as<std::byte> Other>
  requires std::is_const_v<Byte>
  // NOLINTNEXTLINE(google-explicit-constructor): as of spans
  BasicTensorValues(const BasicTensorValues<Other>& values)
      : dtype_(values.dtype()), bytes_(values.bytes()) {}

  DType dtype() const { return dtype_; }
  std::span<Byte> bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  // The values of a tensor of kFloat32.
  std::span<Float> floats() const {
    return {reinterpret_cast<Float*>(bytes_.data()), bytes_.size() / sizeof(float)};
  }

 private:
  DType dtype_ = DType::kFloat32;
  std::span<Byte> bytes_;
};

using TensorValues = BasicTensorValues<std::byte>;
using ConstTensorValues = BasicTensorValues<const std::byte>;

}  // namespace pushpull
