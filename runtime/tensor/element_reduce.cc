// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/element_reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/tensor/half_float.h"
#include "runtime/tensor/reduce.h"

namespace pushpull {
namespace {

template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};

constexpr std::array<EnumName<ElementKind>, 8> kKindNames = {{{ElementKind::kUint8, "uint8"},
                                                              {ElementKind::kInt8, "int8"},
                                                              {ElementKind::kInt32, "int32"},
                                                              {ElementKind::kInt64, "int64"},
                                                              {ElementKind::kFloat16, "float16"},
                                                              {ElementKind::kBFloat16, "bfloat16"},
                                                              {ElementKind::kFloat32, "float32"},
                                                              {ElementKind::kFloat64, "float64"}}};

constexpr std::array<EnumName<ElementOp>, 7> kOpNames = {{{ElementOp::kSum, "sum"},
                                                          {ElementOp::kMean, "mean"},
                                                          {ElementOp::kMin, "min"},
                                                          {ElementOp::kMax, "max"},
                                                          {ElementOp::kProduct, "prod"},
                                                          {ElementOp::kAnd, "and"},
                                                          {ElementOp::kOr, "or"}}};

template <typename Enum, size_t kCount>
std::string NameIn(const std::array<EnumName<Enum>, kCount>& names, Enum value) {
  for (const EnumName<Enum>& name : names) {
    if (name.value == value) return name.name;
  }
  return absl::StrCat("unknown ", static_cast<unsigned>(value));
}

template <typename Element>
std::span<Element> As(std::span<std::byte> bytes) {
  return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

template <typename Element>
std::span<const Element> As(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

template <typename Element, typename Combine>
void ForEach(std::span<Element> to, std::span<const Element> with, Combine combine) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = combine(to[i], with[i]);
}

// Overflow is undefined for signed integers and defined for unsigned ones. Integers narrower than
// int are promoted to int in arithmetic, so the unsigned type is at least as wide.
template <typename Element>
using WrappingOf = std::make_unsigned_t<std::common_type_t<Element, int>>;

template <typename Element>
Element Sum(Element a, Element b) {
  if constexpr (std::is_floating_point_v<Element>) {
    return a + b;
  } else {
    using Wrapping = WrappingOf<Element>;
    return static_cast<Element>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
}

template <typename Element>
Element Product(Element a, Element b) {
  if constexpr (std::is_floating_point_v<Element>) {
    return a * b;
  } else {
    using Wrapping = WrappingOf<Element>;
    return static_cast<Element>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
}

// The one that `is_better`, or the one that is NaN.
template <typename Element, typename IsBetter>
Element BetterOf(Element a, Element b, IsBetter is_better) {
  if constexpr (std::is_floating_point_v<Element>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  return is_better(b, a) ? b : a;
}

template <typename Element>
Element Truth(bool value) {
  return value ? Element{1} : Element{0};
}

template <typename Element>
void ReduceAs(ElementOp op, std::span<Element> into, std::span<const Element> from) {
  switch (op) {
    case ElementOp::kSum:
    case ElementOp::kMean:
      return ForEach(into, from, &Sum<Element>);
    case ElementOp::kMin:
      return ForEach(into, from, [](Element a, Element b) {
        return BetterOf(a, b, [](Element x, Element y) { return x < y; });
      });
    case ElementOp::kMax:
      return ForEach(into, from, [](Element a, Element b) {
        return BetterOf(a, b, [](Element x, Element y) { return x > y; });
      });
    case ElementOp::kProduct:
      return ForEach(into, from, &Product<Element>);
    case ElementOp::kAnd:
      return ForEach(
          into, from, [](Element a, Element b) { return Truth<Element>(a != 0 && b != 0); });
    case ElementOp::kOr:
      return ForEach(
          into, from, [](Element a, Element b) { return Truth<Element>(a != 0 || b != 0); });
  }
}

// float32, which servers' lanes reduce too, has kernels for each instruction set.
template <>
void ReduceAs<float>(ElementOp op, std::span<float> into, std::span<const float> from) {
  switch (op) {
    case ElementOp::kSum:
    case ElementOp::kMean:
      AddScaled(into, from, 1.0F);
      return;
    case ElementOp::kMin:
      return Minimum(into, from);
    case ElementOp::kMax:
      return Maximum(into, from);
    case ElementOp::kProduct:
      return ForEach(into, from, &Product<float>);
    case ElementOp::kAnd:
      return ForEach(into, from, [](float a, float b) { return Truth<float>(a != 0 && b != 0); });
    case ElementOp::kOr:
      return ForEach(into, from, [](float a, float b) { return Truth<float>(a != 0 || b != 0); });
  }
}

template <typename Element>
void FinishAs(ElementOp op, size_t count, std::span<Element> values) {
  if (op == ElementOp::kMean) {
    // Wide enough for a count: an int8 has no 128.
    using Wide = std::conditional_t<std::is_integral_v<Element>, int64_t, Element>;
    const auto divisor = static_cast<Wide>(count);
    for (Element& value : values) value = static_cast<Element>(static_cast<Wide>(value) / divisor);
  } else {
    for (Element& value : values) value = Truth<Element>(value != 0);
  }
}

template <typename Element>
Element IdentityAs(ElementOp op) {
  using Limits = std::numeric_limits<Element>;
  switch (op) {
    case ElementOp::kSum:
    case ElementOp::kMean:
    case ElementOp::kOr:
      break;
    case ElementOp::kProduct:
    case ElementOp::kAnd:
      return Element{1};
    case ElementOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ElementOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  return Element{0};
}

// Halves are computed in blocks of float32 that stay in the L1 cache.
constexpr size_t kHalvesBlock = 512;
using HalvesBlock = std::array<float, kHalvesBlock>;

std::span<float> Decode(ElementKind kind, std::span<const std::byte> halves, HalvesBlock& block) {
  const std::span<float> values(block.data(), halves.size() / sizeof(uint16_t));
  if (kind == ElementKind::kFloat16) {
    DecodeFloat16(halves, values);
  } else {
    DecodeBFloat16(halves, values);
  }
  return values;
}

void EncodeTo(ElementKind kind, std::span<const float> values, std::span<std::byte> halves) {
  if (kind == ElementKind::kFloat16) {
    EncodeFloat16(values, halves);
  } else {
    EncodeBFloat16(values, halves);
  }
}

// Calls `change` with each block of `halves` as float32, and with the block's begin.
template <typename Change>
void ForEachBlock(ElementKind kind, std::span<std::byte> halves, Change change) {
  constexpr size_t kBlockBytes = kHalvesBlock * sizeof(uint16_t);
  HalvesBlock block;
  for (size_t at = 0; at < halves.size(); at += kBlockBytes) {
    const std::span<std::byte> part = halves.subspan(at, std::min(kBlockBytes, halves.size() - at));
    const std::span<float> values = Decode(kind, part, block);
    change(values, at);
    EncodeTo(kind, values, part);
  }
}

void ReduceHalves(ElementKind kind,
                  ElementOp op,
                  std::span<std::byte> into,
                  std::span<const std::byte> from) {
  HalvesBlock other;
  ForEachBlock(kind, into, [&](std::span<float> values, size_t at) {
    ReduceAs<float>(
        op, values, Decode(kind, from.subspan(at, values.size() * sizeof(uint16_t)), other));
  });
}

void ReduceAllHalves(ElementKind kind,
                     ElementOp op,
                     std::span<std::byte> into,
                     std::span<const std::span<const std::byte>> others) {
  const size_t count = others.size() + 1;
  HalvesBlock block;
  ForEachBlock(kind, into, [&](std::span<float> values, size_t at) {
    const size_t num_bytes = values.size() * sizeof(uint16_t);
    for (const std::span<const std::byte> other : others)
      ReduceAs<float>(op, values, Decode(kind, other.subspan(at, num_bytes), block));
    if (NeedsFinish(op, count)) FinishAs<float>(op, count, values);
  });
}

bool IsHalf(ElementKind kind) {
  return kind == ElementKind::kFloat16 || kind == ElementKind::kBFloat16;
}

// Calls `action` with a value of the type that represents `kind` in memory; not for halves.
template <typename Action>
void WithType(ElementKind kind, Action action) {
  switch (kind) {
    case ElementKind::kUint8:
      return action(uint8_t{});
    case ElementKind::kInt8:
      return action(int8_t{});
    case ElementKind::kInt32:
      return action(int32_t{});
    case ElementKind::kInt64:
      return action(int64_t{});
    case ElementKind::kFloat32:
      return action(float{});
    case ElementKind::kFloat64:
      return action(double{});
    case ElementKind::kFloat16:
    case ElementKind::kBFloat16:
      break;
  }
  PUSHPULL_CHECK(false);
}

}  // namespace

size_t ElementBytes(ElementKind kind) {
  if (IsHalf(kind)) return sizeof(uint16_t);
  size_t bytes = 0;
  WithType(kind, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

std::string ToString(ElementKind kind) {
  return NameIn(kKindNames, kind);
}

std::string ToString(ElementOp op) {
  return NameIn(kOpNames, op);
}

void Reduce(ElementKind kind,
            ElementOp op,
            std::span<std::byte> into,
            std::span<const std::byte> from) {
  PUSHPULL_CHECK(into.size() == from.size());
  if (IsHalf(kind)) return ReduceHalves(kind, op, into, from);
  WithType(kind, [&](auto value) {
    using Element = decltype(value);
    ReduceAs<Element>(op, As<Element>(into), As<Element>(from));
  });
}

void FinishReduction(ElementKind kind, ElementOp op, size_t count, std::span<std::byte> values) {
  PUSHPULL_CHECK(count > 0);
  if (!NeedsFinish(op, count)) return;
  if (IsHalf(kind)) {
    ForEachBlock(kind, values, [&](std::span<float> block, size_t /*at*/) {
      FinishAs<float>(op, count, block);
    });
    return;
  }
  WithType(kind, [&](auto value) {
    using Element = decltype(value);
    FinishAs<Element>(op, count, As<Element>(values));
  });
}

void ReduceAll(ElementKind kind,
               ElementOp op,
               std::span<std::byte> into,
               std::span<const std::span<const std::byte>> others) {
  for (const std::span<const std::byte> other : others) PUSHPULL_CHECK(into.size() == other.size());
  if (IsHalf(kind)) return ReduceAllHalves(kind, op, into, others);
  for (const std::span<const std::byte> other : others) Reduce(kind, op, into, other);
  FinishReduction(kind, op, others.size() + 1, into);
}

void FillIdentity(ElementKind kind, ElementOp op, std::span<std::byte> values) {
  if (IsHalf(kind)) {
    ForEachBlock(kind, values, [&](std::span<float> block, size_t /*at*/) {
      std::fill(block.begin(), block.end(), IdentityAs<float>(op));
    });
    return;
  }
  WithType(kind, [&](auto value) {
    using Element = decltype(value);
    const std::span<Element> elements = As<Element>(values);
    std::fill(elements.begin(), elements.end(), IdentityAs<Element>(op));
  });
}

}  // namespace pushpull
