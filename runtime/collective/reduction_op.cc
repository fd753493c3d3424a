// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/reduction_op.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {

ReductionOp::ReductionOp(ElementKind kind, ElementOp op)
    : name_(absl::StrCat(ToString(kind), " ", ToString(op))),
      element_bytes_(ElementBytes(kind)),
      kind_(kind),
      op_(op) {}

ReductionOp::ReductionOp(std::string name, std::vector<std::byte> identity, Combine combine)
    : name_(std::move(name)),
      element_bytes_(identity.size()),
      identity_(std::move(identity)),
      combine_(std::move(combine)) {}

absl::StatusOr<ReductionOp> ReductionOp::Custom(std::string name,
                                                std::vector<std::byte> identity,
                                                Combine combine) {
  if (identity.empty() || identity.size() > kCustomElementBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("operation ",
                                                   name,
                                                   ": its identity has ",
                                                   identity.size(),
                                                   " bytes; an element has 1 to ",
                                                   kCustomElementBytesMax));
  }
  std::vector<std::byte> combined = identity;
  combine(combined, identity);
  if (combined != identity) {
    return absl::InvalidArgumentError(
        absl::StrCat("operation ",
                     name,
                     ": its identity combined with itself is another value; give one that ",
                     "changes nothing"));
  }
  return ReductionOp(std::move(name), std::move(identity), std::move(combine));
}

uint64_t ReductionOp::fingerprint() const {
  return XXH3_64bits_withSeed(name_.data(), name_.size(), element_bytes_);
}

void ReductionOp::Reduce(std::span<std::byte> into, std::span<const std::byte> from) const {
  if (combine_) {
    combine_(into, from);
  } else {
    pushpull::Reduce(kind_, op_, into, from);
  }
}

bool ReductionOp::NeedsFinish(size_t count) const {
  return !combine_ && pushpull::NeedsFinish(op_, count);
}

void ReductionOp::Finish(size_t count, std::span<std::byte> values) const {
  if (!combine_) FinishReduction(kind_, op_, count, values);
}

void ReductionOp::FillIdentity(std::span<std::byte> values) const {
  if (!combine_) return pushpull::FillIdentity(kind_, op_, values);
  PUSHPULL_CHECK(values.size() % element_bytes_ == 0);
  for (size_t at = 0; at < values.size(); at += element_bytes_)
    std::copy(identity_.begin(), identity_.end(), values.begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace pushpull
