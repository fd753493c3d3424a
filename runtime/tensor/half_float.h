// SPDX-License-Identifier: Apache-2.0
//
// Converts between float32 and float16 or bfloat16, as 16 bits at any address: to nearest, ties to
// even; the payload of a NaN is not preserved. Equal input gives equal bits on every machine.
// Nothing allocates or blocks. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pushpull {

// `halves` has at least two bytes per value. Returns the number of finite values that became
// infinite.
uint64_t EncodeFloat16(std::span<const float> values, std::span<std::byte> halves);
uint64_t EncodeBFloat16(std::span<const float> values, std::span<std::byte> halves);

void DecodeFloat16(std::span<const std::byte> halves, std::span<float> values);
void DecodeBFloat16(std::span<const std::byte> halves, std::span<float> values);

}  // namespace pushpull
