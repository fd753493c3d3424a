// SPDX-License-Identifier: Apache-2.0
//
// Encodes numbers, texts and bytes, little-endian, and decodes them: for frame headers, metas and
// file headers. Not for tensors, whose bytes are sent as they lie in memory.
//
// A format is one list of fields for both directions:
//
//   template <typename Visit, typename Offer>
//   void VisitOffer(Visit& visit, Offer& offer) { visit(offer.name, offer.token); }
//
// With a ByteWriter or HeaderWriter it writes the fields, with a ByteReader it reads them.
#pragma once

#include <array>
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

// True for numbers and arrays of them, false for structs with padding.
template <typename Type>
constexpr bool kHasNoPadding =
    std::is_floating_point_v<Type> || std::has_unique_object_representations_v<Type>;

// Writes `number` to the start of `out`, which must be long enough.
template <typename Number>
void StoreNumber(Number number, std::span<std::byte> out) {
  static_assert(kHasNoPadding<Number>);
  std::memcpy(out.data(), &number, sizeof number);
}

template <typename Number>
Number LoadNumber(std::span<const std::byte> bytes) {
  static_assert(kHasNoPadding<Number>);
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// Reserved bytes of a format: written as zeros, ignored when read.
template <size_t kBytes>
using Reserved = std::array<uint8_t, kBytes>;

// What is encoded for a field: the number behind an id, an enumeration or a bool; numbers and
// arrays of numbers themselves.
template <typename Field>
constexpr auto NumberOf(const Field& field) {
  if constexpr (requires { field.value(); }) {
    return field.value();
  } else if constexpr (std::is_enum_v<Field>) {
    return static_cast<std::underlying_type_t<Field>>(field);
  } else if constexpr (std::is_same_v<Field, bool>) {
    return uint8_t{field};
  } else {
    return field;
  }
}

// For error texts and names; a meta with two of them stays far below kFrameMetaBytesMax.
constexpr size_t kTextBytesMax = 1024;

// Writes fields of a fixed size to the start of `out`, which must be long enough.
class HeaderWriter {
 public:
  explicit HeaderWriter(std::span<std::byte> out) : out_(out) {}

  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (Put(NumberOf(fields)), ...);
  }

 private:
  template <typename Number>
  void Put(Number number) {
    StoreNumber(number, out_);
    out_ = out_.subspan(sizeof number);
  }

  std::span<std::byte> out_;
};

// Appends to its own vector. Thread-compatible.
class ByteWriter {
 public:
  // Most metas fit without growing.
  ByteWriter() { bytes_.reserve(128); }

  // Fields that NumberOf accepts, texts and statuses.
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (Add(fields), ...);
  }
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
  void Add(const std::string& text) { PutText(text); }
  void Add(const absl::Status& status) { PutStatus(status); }
  template <typename Field>
  void Add(const Field& field) {
    Put(NumberOf(field));
  }

  std::vector<std::byte> bytes_;
};

// The bytes of a message that is only written, not read, here.
template <typename... Fields>
std::vector<std::byte> BytesOf(const Fields&... fields) {
  ByteWriter writer;
  writer(fields...);
  return writer.Take();
}

// Decodes untrusted bytes of a peer or a file: from the first read beyond the end on, every read
// returns zero and ok() is false. Callers ignore trailing bytes, which a later version may append.
// Thread-compatible.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // The fields that a writer takes.
  template <typename... Fields>
  void operator()(Fields&&... fields) {
    (Read(fields), ...);
  }
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
  // A view of the next `num_bytes`; empty if they exceed the end.
  std::span<const std::byte> GetBytes(size_t num_bytes);
  size_t num_left() const { return bytes_.size(); }
  bool ok() const { return is_ok_; }

 private:
  void Read(std::string& text) { text = GetText(); }
  void Read(absl::Status& status) { status = GetStatus(); }
  template <typename Field>
  void Read(Field& field) {
    field = static_cast<Field>(Get<decltype(NumberOf(field))>());
  }

  bool Has(size_t num_bytes) {
    is_ok_ = is_ok_ && bytes_.size() >= num_bytes;
    return is_ok_;
  }

  std::span<const std::byte> bytes_;
  bool is_ok_ = true;
};

}  // namespace pushpull
