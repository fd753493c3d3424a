// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shared_pages.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

size_t WholePages(uint64_t num_bytes) {
  constexpr size_t kPage = HostBuffer::kPageAlignedBytes;
  return (num_bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedPages>> SharedPages::Create(absl::string_view name,
                                                                 std::span<const uint64_t> sizes) {
  size_t total = 0;
  for (const uint64_t size : sizes) total += 2 * WholePages(size);
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Create(name, total));
  std::shared_ptr<SharedPages> pages(new SharedPages(std::move(memory)));
  MutexLock lock(pages->mu_);
  pages->places_.resize(sizes.size());
  size_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (Place& place : pages->places_[i]) {
      place.bytes = pages->memory_->bytes().subspan(at, sizes[i]);
      pages->by_begin_[place.bytes.data()] = &place;
      at += WholePages(sizes[i]);
    }
  }
  return pages;
}

std::optional<HostBuffer> SharedPages::Take(size_t chunk, Step version) {
  MutexLock lock(mu_);
  for (Place& place : places_[chunk]) {
    if (!place.is_free || (place.published && *place.published >= version)) continue;
    place.is_free = false;
    return HostBuffer::Lent(place.bytes, shared_from_this());
  }
  return std::nullopt;
}

void SharedPages::Publish(size_t chunk, std::span<const std::byte> bytes, Step version) {
  MutexLock lock(mu_);
  for (Place& place : places_[chunk]) {
    if (place.bytes.data() == bytes.data()) place.published = version;
  }
}

void SharedPages::TakeBack(std::span<std::byte> bytes) {
  MutexLock lock(mu_);
  by_begin_.at(bytes.data())->is_free = true;
}

}  // namespace pushpull
