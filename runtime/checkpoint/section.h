// SPDX-License-Identifier: Apache-2.0
//
// Named sections, by which the format is extended. A reader takes those it knows and skips the
// others, but refuses the file if an unknown one is marked as required. Pure. Layout:
// docs/decisions/0009-checkpoint-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {

// What a reader that does not know the section does.
enum class SectionRule : uint8_t { kSkip = 0, kRequired = 1 };

// A section in place; its bytes are part of the file's, and live as long.
struct Section {
  std::string name;
  SectionRule rule = SectionRule::kSkip;
  std::span<const std::byte> bytes;
};

// Appends a section; the name has 1 to kTextBytesMax characters.
void PutSection(absl::string_view name,
                SectionRule rule,
                std::span<const std::byte> bytes,
                ByteWriter& out);

// Splits `bytes`, which are nothing but sections. `file` and `offset` say where they come from.
//
// kDataLoss       damaged; the text has the file and the offset of the section's start.
// kUnimplemented  a required section is not in `known`; written by a newer version.
absl::StatusOr<std::vector<Section>> ReadSections(std::span<const std::byte> bytes,
                                                  std::initializer_list<absl::string_view> known,
                                                  const std::string& file,
                                                  uint64_t offset);

}  // namespace pushpull
