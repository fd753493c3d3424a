// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/event_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr absl::string_view kVersion = "brain.Event:2";
constexpr uint32_t kMaskDelta = 0xa282ead8;  // of TFRecord's checksums

// Protobuf's wire types, in the low three bits of a field's key.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr std::array<uint32_t, 256> Crc32cTable() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

template <typename Number>
std::string LittleEndian(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}

std::string Key(uint32_t field, WireType type) {
  return Varint(field << 3 | type);
}

std::string Bytes(uint32_t field, absl::string_view value) {
  return absl::StrCat(Key(field, kBytes), Varint(value.size()), value);
}

std::string TimeField(double time) {
  return absl::StrCat(Key(1, kFixed64), LittleEndian(time));
}

std::string Checksum(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return LittleEndian(((crc >> 15) | (crc << 17)) + kMaskDelta);
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = Crc32cTable();
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string EventRecord(absl::string_view data) {
  const std::string length = LittleEndian(static_cast<uint64_t>(data.size()));
  return absl::StrCat(length, Checksum(length), data, Checksum(data));
}

std::string ScalarEvent(double time, uint64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    const std::string value =
        absl::StrCat(Bytes(1, scalar.tag), Key(2, kFixed32), LittleEndian(scalar.value));
    absl::StrAppend(&summary, Bytes(1, value));
  }
  return absl::StrCat(TimeField(time), Key(2, kVarint), Varint(step), Bytes(5, summary));
}

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder, double time) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return StatusFromErrno(error.value(), absl::StrCat("folder ", folder));
  // TensorBoard reads files with this infix, in the order of their names.
  std::string path = absl::StrCat(
      folder, "/events.out.tfevents.", static_cast<int64_t>(time), ".pushpull.", getpid());
  errno = 0;
  EventFile file(path, std::ofstream(path, std::ios::binary | std::ios::trunc));
  PUSHPULL_RETURN_IF_ERROR(file.Write(absl::StrCat(TimeField(time), Bytes(3, kVersion))));
  return file;
}

absl::Status EventFile::Append(double time, uint64_t step, const std::vector<Scalar>& scalars) {
  return Write(ScalarEvent(time, step, scalars));
}

absl::Status EventFile::Write(absl::string_view event) {
  errno = 0;
  if (file_ << EventRecord(event) << std::flush) return absl::OkStatus();
  return StatusFromErrno(errno == 0 ? EIO : errno, absl::StrCat("write ", path_));
}

}  // namespace pushpull
