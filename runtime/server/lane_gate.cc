// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane for gated steps (consistency/gate.h, decisions/0019-gated-step.md).
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/consistency/gate.h"
#include "runtime/server/lane.h"

namespace pushpull {

bool Lane::HasEverybody(const ChunkSlot& slot) const {
  std::vector<WorkerId> asked;
  for (const Contribution& contribution : slot.step.contributors())
    asked.push_back(contribution.worker);
  for (const HeldContribution& held : slot.held) asked.push_back(held.contribution.worker);
  std::sort(asked.begin(), asked.end());
  return MayDecide(membership_, slot.state.version(), asked);
}

void Lane::SayHeld(Connection& connection, const ChunkSlot& slot, const FrameHeader& push) {
  if (!HoldsApart(slot)) return;
  OutgoingFrame answer{.header = push, .meta = {}, .payload = {}};
  answer.header.type = FrameType::kHeld;
  answer.header.flags = 0;
  answer.header.codec = Codec::kNone;
  answer.header.epoch = slot.shard->member.entry().epoch;
  connection.channel().Send(std::move(answer));
}

// Nothing is added before all is here: what is held outlasts a reign, a sum does not.
bool Lane::HasDecided(ChunkSlot& slot) {
  const Admission* decided = slot.Admitted(membership_);
  if (decided == nullptr || !slot.shard->member.is_open()) return false;
  bool is_complete = true;
  membership_.ForEachRequired(slot.state.version(), [&](WorkerId worker) {
    is_complete = is_complete && (!decided->Has(worker) || slot.HasHeld(worker));
  });
  if (is_complete) LeaveOut(slot, *decided);
  return is_complete;
}

// What those have brought who do not count is not wanted. They are mostly dead; one that is not
// hears of the next version like everybody.
void Lane::LeaveOut(ChunkSlot& slot, const Admission& decided) {
  const auto out =
      std::stable_partition(slot.held.begin(), slot.held.end(), [&](const HeldContribution& held) {
        return decided.Has(held.contribution.worker);
      });
  std::vector<HeldContribution> left_out(std::make_move_iterator(out),
                                         std::make_move_iterator(slot.held.end()));
  slot.held.erase(out, slot.held.end());
  for (HeldContribution& held : left_out) {
    if (held.waiter.connection != nullptr) slot.AddWaiter(held.waiter);
    pool_->Return(std::move(held.values));
  }
}

void Lane::DropContributionsOf(ChunkSlot& slot, const View& before, bool all_gone) {
  // What all of them have brought before they died may be decided already.
  const bool is_void = all_gone && !is_gated();
  // Nothing of the living is on its way between two modes.
  if (is_void || before.consistency.gated != is_gated()) slot.DropContributions();
}

// ---- a shard that moves ----

// This server reigns over the chunk's shard no more. It may again, soon and at the same version:
// then it still has what nobody may be there to send again.
void Lane::EndContributions(ChunkSlot& slot) {
  for (HeldContribution& held : slot.held) {
    if (held.waiter.connection != nullptr) slot.AddWaiter(held.waiter);
    held.waiter.connection = nullptr;
  }
  if (!HoldsApart(slot)) slot.DropContributions();
}

void Lane::BeginHandover(const Handover& message) {
  const auto it = shards_.find(message.shard);
  if (it == shards_.end()) return;
  handovers_.insert_or_assign(message.shard, message);
  BeginHandoverIfFree(*it->second);
}

// What is held for a gated step does not travel, and whoever brought it may die before it can bring
// it to the new primary. All chunks are without anything before the first push of the next step.
void Lane::BeginHandoverIfFree(ShardSlot& shard) {
  const auto waiting = handovers_.find(shard.id);
  if (waiting == handovers_.end()) return;
  const bool is_free =
      std::all_of(shard.chunks.begin(), shard.chunks.end(), [&](const ChunkSlot* slot) {
        return !HoldsApart(*slot) || slot->held.empty();
      });
  if (!is_free) return;
  const Handover message = std::move(waiting->second);
  handovers_.erase(waiting);
  replication_.BeginHandover(shard, message);
}

}  // namespace pushpull
