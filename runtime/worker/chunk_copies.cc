// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_copies.h"

#include <functional>

namespace pushpull {
namespace {

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  // Only std::less orders pointers into different objects.
  const std::less<const std::byte*> is_below;
  return !a.empty() && !b.empty() && is_below(a.data(), b.data() + b.size()) &&
         is_below(b.data(), a.data() + a.size());
}

}  // namespace

void ChunkCopies::Take(size_t chunk, const Copy& copy, bool is_kept) {
  std::optional<Copy>& known = copies_[chunk];
  const bool is_in_place = known && known->value.data() == copy.value.data();
  if (is_kept || is_in_place) {
    known = copy;
  } else {
    Invalidate(chunk, copy.value);
  }
}

void ChunkCopies::Invalidate(size_t chunk, std::span<const std::byte> memory) {
  std::optional<Copy>& copy = copies_[chunk];
  if (copy && Overlap(copy->value, memory)) copy.reset();
}

void ChunkCopies::Clear() {
  for (std::optional<Copy>& copy : copies_) copy.reset();
}

}  // namespace pushpull
