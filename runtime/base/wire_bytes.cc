// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/wire_bytes.h"

#include "runtime/base/printable.h"

namespace pushpull {

void ByteWriter::PutText(absl::string_view text) {
  text = text.substr(0, kTextBytesMax);
  Put(static_cast<uint16_t>(text.size()));
  PutBytes(std::as_bytes(std::span(text.data(), text.size())));
}

void ByteWriter::PutBytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void ByteWriter::PutStatus(const absl::Status& status) {
  Put(static_cast<uint32_t>(status.code()));
  PutText(status.message());
}

std::string ByteReader::GetText() {
  const std::span<const std::byte> bytes = GetBytes(Get<uint16_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> ByteReader::GetBytes(size_t num_bytes) {
  if (!Has(num_bytes)) return {};
  const std::span<const std::byte> bytes = bytes_.first(num_bytes);
  bytes_ = bytes_.subspan(num_bytes);
  return bytes;
}

absl::Status ByteReader::GetStatus() {
  const auto code = Get<uint32_t>();
  const std::string text = GetText();
  const bool is_known = code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return {is_known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          Printable(text)};
}

}  // namespace pushpull
