// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/section.h"

#include <xxhash.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/checkpoint/file_system.h"

namespace pushpull {

namespace {

// Covers the name, rule and length that precede it, and the bytes.
uint64_t ChecksumSection(std::span<const std::byte> head, std::span<const std::byte> bytes) {
  const uint64_t seed = XXH3_64bits(head.data(), head.size());
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace

void PutSection(absl::string_view name,
                SectionRule rule,
                std::span<const std::byte> bytes,
                ByteWriter& out) {
  PUSHPULL_CHECK(!name.empty() && name.size() <= kTextBytesMax);
  const std::vector<std::byte> head = BytesOf(std::string(name), rule, uint64_t{bytes.size()});
  out.PutBytes(head);
  out.Put(ChecksumSection(head, bytes));
  out.PutBytes(bytes);
}

absl::StatusOr<std::vector<Section>> ReadSections(std::span<const std::byte> bytes,
                                                  std::initializer_list<absl::string_view> known,
                                                  const std::string& file,
                                                  uint64_t offset) {
  std::vector<Section> sections;
  ByteReader reader(bytes);
  while (reader.num_left() > 0) {
    const size_t start = bytes.size() - reader.num_left();
    Section section;
    uint8_t rule = 0;
    uint64_t num_bytes = 0;
    reader(section.name, rule, num_bytes);
    const size_t head_bytes = bytes.size() - reader.num_left() - start;
    const auto checksum = reader.Get<uint64_t>();
    section.bytes = reader.GetBytes(num_bytes);
    if (!reader.ok()) return DamageError(file, offset + start, "a section ends beyond the end");
    // The name itself may be damaged, and may be printed on a terminal.
    const std::string shown = absl::CEscape(section.name);
    if (checksum != ChecksumSection(bytes.subspan(start, head_bytes), section.bytes))
      return DamageError(file, offset + start, absl::StrCat("wrong checksum of section ", shown));
    section.rule = rule == 0 ? SectionRule::kSkip : SectionRule::kRequired;
    const bool is_known = absl::c_linear_search(known, section.name);
    if (!is_known && section.rule == SectionRule::kRequired) {
      return absl::UnimplementedError(absl::StrCat(
          file, ": needs section ", shown, ", which this version does not know; use a later one"));
    }
    if (is_known) sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace pushpull
