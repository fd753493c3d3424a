// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane for contributions that lie in memory which a worker shares
// (decisions/0040-registered-memory.md): they are added from there, where that can be done at once.
#include <utility>

#include "runtime/server/lane.h"
#include "runtime/server/push_refusal.h"

namespace pushpull {

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

}  // namespace pushpull
