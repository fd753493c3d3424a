// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/damage.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr char kOffsetPayload[] = "pushpull.dev/offset";

}  // namespace

absl::Status DamageError(const std::string& file, uint64_t offset, absl::string_view what) {
  absl::Status status = absl::DataLossError(absl::StrCat(file, " at byte ", offset, ": ", what));
  status.SetPayload(kOffsetPayload, absl::Cord(absl::StrCat(offset)));
  return status;
}

std::optional<uint64_t> DamageOffset(const absl::Status& status) {
  const auto payload = status.GetPayload(kOffsetPayload);
  uint64_t offset = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &offset)) return std::nullopt;
  return offset;
}

}  // namespace pushpull
