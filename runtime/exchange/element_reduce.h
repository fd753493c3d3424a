// SPDX-License-Identifier: Apache-2.0
//
// Reduces arrays of the element types of collectives, element by element. Equal input gives equal
// bits on every machine, a NaN's payload aside. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "pushpull/collectives.h"

namespace pushpull {

// into = into + from, or the smaller (larger) of both; NaN where either is NaN. Integers wrap
// around. A mean is a sum until DivideBy. The spans are equally long, a whole number of elements,
// aligned for them, and do not overlap.
void Reduce(ElementType type,
            Reduction reduction,
            std::span<std::byte> into,
            std::span<const std::byte> from);

// Floating point types only.
void DivideBy(ElementType type, size_t count, std::span<std::byte> values);

}  // namespace pushpull
