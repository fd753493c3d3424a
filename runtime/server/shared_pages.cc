// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shared_pages.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/tensor/dtype.h"

namespace pushpull {
namespace {

size_t WholePages(uint64_t num_bytes) {
  constexpr size_t kPage = HostBuffer::kPageAlignedBytes;
  return (num_bytes + kPage - 1) / kPage * kPage;
}

// Maximum size of a region: creating one blocks the lane while the kernel finds the pages.
constexpr uint64_t kRegionBytesMax = uint64_t{256} << 20;

// Only chunks whose steps replace the value with the sum: nothing ever writes to a published value
// in place. An optimizer would.
bool MayHavePages(const Chunk& chunk) {
  const TensorSpec& spec = chunk.tensor().spec;
  return IsMaster(spec.dtype) && spec.optimizer.kind == OptimizerKind::kSum &&
         spec.reduction != Reduction::kMean;
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

// ---- LanePages ----

bool LanePages::IsAnsweredInPlace(const FrameHeader& push) const {
  return push.type == FrameType::kPushPull && (push.flags & kFlagTakesInPlace) != 0 &&
         lane_.rules.policy().MayShareValues();
}

void LanePages::Share(Connection& connection, const FrameHeader& push) {
  if (!IsAnsweredInPlace(push)) return;
  for (size_t& shared = connection.num_pages_shared(); shared < pages_.size(); ++shared)
    connection.channel().Share(pages_[shared]->memory(), nullptr);
}

void LanePages::Prepare(const Connection& connection, Chunk& chunk, const FrameHeader& push) {
  StepAccumulator& sum = chunk.step().sum();
  // A worker left behind may still be reading what an earlier mode left in these pages.
  if (!lane_.rules.policy().MayShareValues() && sum.is_lent()) sum.Release();
  if (!IsAnsweredInPlace(push) || !MayHavePages(chunk) || sum.is_lent()) return;
  if (connection.channel().kind() != "shm") return;
  const Place* place = FindOrMake(chunk);
  if (place == nullptr) return;
  std::optional<HostBuffer> memory = place->pages->Take(place->index, chunk.state().version());
  if (memory) lane_.pool->Return(sum.ExchangeMemory(*std::move(memory)));
}

bool LanePages::Publish(const Chunk& chunk, const FrameHeader& push, const HostBuffer& value) {
  if (!value.is_lent() || !IsAnsweredInPlace(push)) return false;
  const auto place = places_.find(&chunk);
  if (place == places_.end()) return false;
  place->second.pages->Publish(place->second.index, value.bytes(), chunk.state().version());
  return true;
}

// Creates one region for as many of the chunks without pages as fit into it.
const LanePages::Place* LanePages::FindOrMake(const Chunk& chunk) {
  const auto known = places_.find(&chunk);
  if (known != places_.end()) return &known->second;
  if (lacks_memory_) return nullptr;
  std::vector<const Chunk*> chunks = {&chunk};
  std::vector<uint64_t> sizes = {chunk.state().num_bytes()};
  uint64_t total = sizes.front();
  for (const auto& [id, other] : lane_.shards.chunks()) {
    if (other == &chunk || total > kRegionBytesMax || places_.contains(other)) continue;
    if (!MayHavePages(*other) || !other->shard().member().is_open()) continue;
    chunks.push_back(other);
    sizes.push_back(other->state().num_bytes());
    total += sizes.back();
  }
  const absl::StatusOr<std::shared_ptr<SharedPages>> made =
      SharedPages::Create(absl::StrCat("pushpull-", lane_.job), sizes);
  if (!made.ok()) {
    lacks_memory_ = true;
    lane_.log.Warning("values are copied to workers on this host",
                      {{"why", made.status().message()}});
    return nullptr;
  }
  pages_.push_back(*made);
  for (size_t i = 0; i < chunks.size(); ++i) places_[chunks[i]] = {*made, i};
  return &places_.at(&chunk);
}

}  // namespace pushpull
