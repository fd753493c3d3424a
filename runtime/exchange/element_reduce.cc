// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/element_reduce.h"

#include <cstdint>
#include <type_traits>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

template <typename Element>
std::span<Element> As(std::span<std::byte> bytes) {
  return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

template <typename Element>
std::span<const Element> As(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

// What `combine` makes of two elements, unless the first is NaN.
template <typename Element, typename Combine>
void ForEach(std::span<std::byte> into, std::span<const std::byte> from, Combine combine) {
  const std::span<Element> to = As<Element>(into);
  const std::span<const Element> with = As<Element>(from);
  for (size_t i = 0; i < to.size(); ++i) to[i] = combine(to[i], with[i]);
}

// Overflow of signed integers is not defined, that of unsigned ones is.
template <typename Element>
Element Sum(Element a, Element b) {
  if constexpr (std::is_floating_point_v<Element>) {
    return a + b;
  } else {
    using Unsigned = std::make_unsigned_t<Element>;
    return static_cast<Element>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
}

// The one of both that `is_better`, or the one that is NaN.
template <typename Element, typename IsBetter>
Element Choose(Element a, Element b, IsBetter is_better) {
  if constexpr (std::is_floating_point_v<Element>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  return is_better(b, a) ? b : a;
}

template <typename Element>
void ReduceAs(Reduction reduction, std::span<std::byte> into, std::span<const std::byte> from) {
  switch (reduction) {
    case Reduction::kMean:
    case Reduction::kSum:
      return ForEach<Element>(into, from, &Sum<Element>);
    case Reduction::kMin:
      return ForEach<Element>(into, from, [](Element a, Element b) {
        return Choose(a, b, [](Element x, Element y) { return x < y; });
      });
    case Reduction::kMax:
      return ForEach<Element>(into, from, [](Element a, Element b) {
        return Choose(a, b, [](Element x, Element y) { return x > y; });
      });
  }
}

template <typename Element>
void DivideAs(size_t count, std::span<std::byte> values) {
  for (Element& value : As<Element>(values)) value /= static_cast<Element>(count);
}

}  // namespace

void Reduce(ElementType type,
            Reduction reduction,
            std::span<std::byte> into,
            std::span<const std::byte> from) {
  PUSHPULL_CHECK(into.size() == from.size());
  switch (type) {
    case ElementType::kUint8:
      return ReduceAs<uint8_t>(reduction, into, from);
    case ElementType::kInt32:
      return ReduceAs<int32_t>(reduction, into, from);
    case ElementType::kInt64:
      return ReduceAs<int64_t>(reduction, into, from);
    case ElementType::kFloat32:
      return ReduceAs<float>(reduction, into, from);
    case ElementType::kFloat64:
      return ReduceAs<double>(reduction, into, from);
  }
}

void DivideBy(ElementType type, size_t count, std::span<std::byte> values) {
  PUSHPULL_CHECK(count > 0);
  if (type == ElementType::kFloat32) DivideAs<float>(count, values);
  if (type == ElementType::kFloat64) DivideAs<double>(count, values);
}

}  // namespace pushpull
