// SPDX-License-Identifier: Apache-2.0
//
// Encodes numbers, texts and bytes, little-endian, and decodes them: for frame headers, metas and
// file headers. Not for tensors, whose bytes are sent as they lie in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

static_assert(std::endian::native == std::endian::little,
              "tensors are sent and stored as they lie in memory; the formats are little-endian");

// Writes `number` to the first bytes of `out`, which must be long enough.
template <typename Number>
void StoreNumber(Number number, std::span<std::byte> out) {
  static_assert(std::is_arithmetic_v<Number>);
  std::memcpy(out.data(), &number, sizeof number);
}

template <typename Number>
Number LoadNumber(std::span<const std::byte> bytes) {
  static_assert(std::is_arithmetic_v<Number>);
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// For error texts and names; a meta with two of them stays far below kFrameMetaBytesMax.
constexpr size_t kTextBytesMax = 1024;

// Appends to a vector of its own. Thread-compatible.
class ByteWriter {
 public:
  // Most metas fit without growing.
  ByteWriter() { bytes_.reserve(128); }

  template <typename Number>
  void Put(Number number) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof number);
    StoreNumber(number, std::span(bytes_).subspan(at));
  }
  // The length as 16 bits, then the text, cut at kTextBytesMax.
  void PutText(absl::string_view text);
  // The code as 32 bits, then the message as a text.
  void PutStatus(const absl::Status& status);
  // The bytes without their length, which the reader must know.
  void PutBytes(std::span<const std::byte> bytes);
  size_t num_bytes() const { return bytes_.size(); }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Decodes untrusted bytes of a peer or a file: after the first read beyond the end every read
// returns zero and ok() is false. Callers ignore trailing bytes, which a later version may append.
// Thread-compatible.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename Number>
  Number Get() {
    if (!Has(sizeof(Number))) return Number{};
    const Number number = LoadNumber<Number>(bytes_);
    bytes_ = bytes_.subspan(sizeof number);
    return number;
  }
  std::string GetText();
  // Unknown codes become kUnknown.
  absl::Status GetStatus();
  // A view of the next `num_bytes`; empty beyond the end.
  std::span<const std::byte> GetBytes(size_t num_bytes);
  size_t num_left() const { return bytes_.size(); }
  bool ok() const { return is_ok_; }

 private:
  bool Has(size_t num_bytes) {
    is_ok_ = is_ok_ && bytes_.size() >= num_bytes;
    return is_ok_;
  }

  std::span<const std::byte> bytes_;
  bool is_ok_ = true;
};

}  // namespace pushpull
