// SPDX-License-Identifier: Apache-2.0
//
// The type of a tensor's elements. The numbers travel in frames and stay what they are; a further
// type (float16, bfloat16, int8) is appended with the code that can sum it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pushpull {

enum class DType : uint8_t {
  kFloat32 = 1,  // IEEE 754 binary32, host byte order in memory, little-endian on the wire
};

// Whether the number, as it came from a peer, is one of the above. The other functions need it to
// be.
constexpr bool IsKnown(DType dtype) {
  return dtype == DType::kFloat32;
}

// Bytes of one element.
size_t DTypeBytes(DType dtype);

// "float32"; "dtype 7" for a number that is none.
std::string ToString(DType dtype);

}  // namespace pushpull
