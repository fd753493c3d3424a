// SPDX-License-Identifier: Apache-2.0
//
// float16 and bfloat16 as 16 bits at any address, from and to float32: to nearest, ties to even;
// the payload of a NaN is not preserved. Equal input gives equal bits on every machine. Nothing is
// allocated, nothing blocks. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pushpull {

// `halves` has two bytes a value or more. Returns how many finite values became infinite.
uint64_t EncodeFloat16(std::span<const float> values, std::span<std::byte> halves);
uint64_t EncodeBFloat16(std::span<const float> values, std::span<std::byte> halves);

void DecodeFloat16(std::span<const std::byte> halves, std::span<float> values);
void DecodeBFloat16(std::span<const std::byte> halves, std::span<float> values);

}  // namespace pushpull
