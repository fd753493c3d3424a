// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as what a codec has made of a chunk: no crash, what is refused says why and changes no
// value, and of what is accepted every codec's own bytes decode again. Input: the codec, how many
// values are expected (two bytes), whether the header is to be made right, then the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/tensor/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pushpull::Codec;
  constexpr size_t kPrefix = 4;
  if (size < kPrefix) return 0;
  const auto codec = static_cast<Codec>(1 + data[0] % 5);
  const size_t num_values = data[1] + 256U * data[2];
  std::vector<std::byte> encoded(size - kPrefix);
  std::transform(
      data + kPrefix, data + size, encoded.begin(), [](uint8_t byte) { return std::byte{byte}; });
  const bool is_made_right = data[3] % 2 == 1;
  if (is_made_right) {
    // Random bytes seldom have the right length and header; what comes behind is of interest, too.
    encoded.resize(pushpull::EncodedBytes(codec, num_values));
    encoded[0] = std::byte{1};
    encoded[1] = static_cast<std::byte>(codec);
    encoded[2] = encoded[3] = std::byte{0};
    pushpull::StoreNumber(static_cast<uint32_t>(num_values), std::span(encoded).subspan(4));
  }
  std::vector<float> values(num_values, 7.0F);

  const absl::Status decoded = pushpull::Decode(codec, encoded, values);

  // Of topk the numbers and places may still be wrong.
  PUSHPULL_CHECK(decoded.ok() || !is_made_right || codec == Codec::kTopK);
  if (!decoded.ok()) {
    PUSHPULL_CHECK(!decoded.message().empty());
    PUSHPULL_CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 7.0F; }));
    return 0;
  }
  std::vector<std::byte> again(pushpull::EncodedBytes(codec, num_values));
  const uint64_t overflows = pushpull::Encode(codec, values, size, again);
  PUSHPULL_CHECK(codec == Codec::kInt8 || overflows == 0);
  PUSHPULL_CHECK(pushpull::Decode(codec, again, values).ok());
  return 0;
}
