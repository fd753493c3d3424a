// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane for contributions that lie in memory which a worker shares
// (decisions/0040-registered-memory.md): they are added from there, where that can be done at once;
// and for values that workers read where they lie here (decisions/0041-sums-in-place.md).
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/server/lane.h"
#include "runtime/server/push_refusal.h"

namespace pushpull {
namespace {

// Of one region: it blocks the lane while the kernel finds the pages.
constexpr uint64_t kPagesBytesMax = uint64_t{256} << 20;

}  // namespace

// Whole ones, aligned: the channel has looked.
std::span<const float> Lane::ValuesInPlace(const ReceivedFrame& frame) {
  const std::span<const std::byte> bytes = frame.in_place.bytes;
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The first contribution is copied, into the accumulator; what is to be kept for later is copied,
// too, for the worker may not live as long.
bool Lane::TakesInPlace(Connection& connection, const FrameHeader& header) {
  Reception& reception = connection.reception();
  reception = Reception{};
  ChunkSlot* slot = Find(header.chunk);
  if (slot == nullptr || !IsPush(header.type) || !CheckPayload(*slot, header).ok() ||
      !slot->shard->member.is_open())
    return false;
  const bool has_sum = slot->accumulator.has_sum() && !slot->accumulator.is_receiving();
  if (!has_sum || slot->has_failed || !MayAddDirectly(*slot, header)) return false;
  if (slot->Judge(membership_, header) != PushVerdict::kContribute) return false;
  reception.slot = slot;
  reception.place = Reception::Place::kInPlace;
  return true;
}

void Lane::AddInPlace(ChunkSlot& slot, const Reception& reception, HeldContribution& contribution) {
  if (contribution.counts)
    slot.accumulator.AddTo(reception.in_place, contribution.contribution.weight);
  At(SyncPhase::kSum);
  slot.step.Count(contribution.contribution);
  slot.skips_step = slot.skips_step || contribution.skips_step;
  contribution.waiter.sum_time = executor_.Now() - contribution.waiter.looked_at;
  metrics_.AddInPlace(reception.in_place.size_bytes());
  slot.AddWaiter(contribution.waiter);
}

std::span<const float> Lane::ReceivedValues(const ChunkSlot& slot, const Reception& reception) {
  switch (reception.place) {
    case Reception::Place::kAccumulator:
      return slot.accumulator.received();
    case Reception::Place::kInPlace:
      return reception.in_place;
    case Reception::Place::kBuffer:
    case Reception::Place::kNowhere:
      return reception.buffer.floats();
  }
  return {};
}

// ---- values ----

// In synchronous mode nobody writes to a version's memory before everybody has pushed the step that
// begins with it. With backup workers some may be left behind.
bool Lane::MayLeaveInPlace(const FrameHeader& push) const {
  const Consistency& consistency = membership_.active().consistency;
  return push.type == FrameType::kPushPull && (push.flags & kFlagTakesInPlace) != 0 &&
         consistency.is_sync() && !consistency.is_led();
}

// Sums of sums alone: their value is never changed where it lies.
bool Lane::MayHavePages(const ChunkSlot& slot) {
  const TensorSpec& spec = slot.tensor.spec;
  return spec.optimizer.kind == OptimizerKind::kSum && spec.reduction != Reduction::kMean;
}

void Lane::SharePages(Connection& connection, const FrameHeader& push) {
  if (!MayLeaveInPlace(push)) return;
  for (size_t& shared = connection.num_pages_shared(); shared < pages_.size(); ++shared)
    connection.channel().Share(pages_[shared]->memory(), nullptr);
}

// The sum that becomes the next value is made where workers can read it; and not there where a
// worker may be left behind that still reads the one before.
void Lane::PreparePages(Connection& connection, ChunkSlot& slot, const FrameHeader& push) {
  if (membership_.active().consistency.is_led() && slot.accumulator.is_lent())
    slot.accumulator.Release();
  if (!MayLeaveInPlace(push) || !MayHavePages(slot) || slot.accumulator.is_lent()) return;
  if (connection.channel().kind() != "shm") return;
  if (slot.pages == nullptr) MakePages(slot);
  if (slot.pages == nullptr) return;
  std::optional<HostBuffer> place = slot.pages->Take(slot.index_in_pages, slot.state.version());
  if (place) pool_->Return(slot.accumulator.ExchangeMemory(*std::move(place)));
}

// True: it may be left where it is.
bool Lane::PublishInPlace(const ChunkSlot& slot, const Waiter& waiter, const HostBuffer& value) {
  if (!value.is_lent() || slot.pages == nullptr || !MayLeaveInPlace(waiter.request)) return false;
  slot.pages->Publish(slot.index_in_pages, value.bytes(), slot.state.version());
  return true;
}

// Of all chunks that have none, as many as go into one region.
void Lane::MakePages(ChunkSlot& slot) {
  if (lacks_pages_) return;
  std::vector<ChunkSlot*> chunks = {&slot};
  std::vector<uint64_t> sizes = {slot.state.num_bytes()};
  uint64_t total = sizes.front();
  for (const auto& [id, other] : slots_) {
    if (other->pages != nullptr || other.get() == &slot || total > kPagesBytesMax) continue;
    if (!MayHavePages(*other) || !other->shard->member.is_open()) continue;
    chunks.push_back(other.get());
    sizes.push_back(other->state.num_bytes());
    total += sizes.back();
  }
  const absl::StatusOr<std::shared_ptr<SharedPages>> made =
      SharedPages::Create(absl::StrCat("pushpull-", options_.job), sizes);
  if (!made.ok()) {
    lacks_pages_ = true;
    log_.Warning("values are copied to workers on this host", {{"why", made.status().message()}});
    return;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i]->pages = *made;
    chunks[i]->index_in_pages = i;
  }
  pages_.push_back(*made);
}

}  // namespace pushpull
