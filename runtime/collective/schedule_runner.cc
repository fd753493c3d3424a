// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/schedule_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Read together with a header, for the elements of a small call.
constexpr size_t kReadWithHeader = 4096;

}  // namespace

PreparedSchedule::PreparedSchedule(RankSchedule schedule) : schedule_(std::move(schedule)) {
  std::vector<Queue> locals;
  std::vector<Queue> sends;
  for (uint32_t i = 0; i < schedule_.ops.size(); ++i) {
    const ScheduleOp& op = schedule_.ops[i];
    if (op.peer < 0) {
      locals.push_back({.ops = {i}});
      continue;
    }
    std::vector<Queue>& queues = op.kind == OpKind::kSend ? sends : queues_;
    auto queue = std::find_if(
        queues.begin(), queues.end(), [&](const Queue& other) { return other.peer == op.peer; });
    if (queue == queues.end()) {
      queues.push_back({.peer = op.peer, .is_send = op.kind == OpKind::kSend});
      queue = std::prev(queues.end());
    }
    queue->ops.push_back(i);
  }
  queues_.insert(queues_.end(), locals.begin(), locals.end());
  queues_.insert(queues_.end(), sends.begin(), sends.end());
}

void ScheduleRunner::Begin(const CollectiveCall& call) {
  call_ = call;
  element_bytes_ = call.header.element_bytes;
  header_ = EncodeCallHeader(call.header);
  failure_ = {};
  const std::vector<ScheduleOp>& ops = call.schedule->ops();
  positions_.clear();
  ends_.clear();
  for (const ScheduleOp& op : ops) {
    positions_.push_back(op.range.begin * element_bytes_);
    ends_.push_back(op.range.end * element_bytes_);
  }
  num_exposed_.resize(links_.links.size());
  const std::vector<PreparedSchedule::Queue>& queues = call.schedule->queues();
  progress_.assign(queues.size(), {});
  for (size_t i = 0; i < queues.size(); ++i) {
    if (!queues[i].is_send) continue;
    progress_[i].exposes = LinkTo(queues[i].peer).CanExpose(call.values);
    progress_[i].num_read = num_exposed_[static_cast<size_t>(queues[i].peer)];
    BeginOp(queues[i], progress_[i]);
  }
  num_left_ = ops.size();
}

absl::StatusOr<bool> ScheduleRunner::Advance() {
  bool has_moved = false;
  const std::vector<PreparedSchedule::Queue>& queues = call_.schedule->queues();
  // First, because receives wait for what peers have read.
  for (size_t i = 0; i < queues.size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(const bool moved, FollowReader(queues[i], progress_[i]));
    has_moved = has_moved || moved;
  }
  for (size_t i = 0; i < queues.size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(const bool moved, AdvanceQueue(queues[i], progress_[i]));
    has_moved = has_moved || moved;
  }
  for (size_t peer = 0; peer < links_.links.size(); ++peer) {
    if (links_.links[peer] == nullptr) continue;
    const absl::Status flushed = links_.links[peer]->Flush();
    if (!flushed.ok()) return Fail(static_cast<int>(peer), flushed);
  }
  return has_moved;
}

bool ScheduleRunner::HasUnsent() const {
  return std::any_of(links_.links.begin(), links_.links.end(), [](const auto& link) {
    return link != nullptr && link->has_unsent();
  });
}

absl::Status ScheduleRunner::Fail(int peer, const absl::Status& status) {
  failure_ = {.peer = peer, .status = status};
  return status;
}

uint64_t ScheduleRunner::LimitOf(uint32_t index) const {
  uint64_t limit = ends_[index];
  for (const uint32_t before : call_.schedule->ops()[index].after) {
    const bool is_in_the_way = ends_[before] > positions_[index];
    if (is_in_the_way && positions_[before] < ends_[before])
      limit = std::min(limit, positions_[before]);
  }
  return limit;
}

bool ScheduleRunner::IsExposed(const Progress& progress, uint32_t index) const {
  const ElementRange& range = call_.schedule->ops()[index].range;
  return progress.exposes && range.size() * element_bytes_ >= kExposedBytesMin;
}

uint64_t ScheduleRunner::Continuation(const Progress& progress, uint32_t index) const {
  return IsExposed(progress, index) ? progress.exposed_until : positions_[index];
}

void ScheduleRunner::BeginOp(const PreparedSchedule::Queue& queue, Progress& progress) {
  if (progress.next < queue.ops.size())
    progress.exposed_until = positions_[queue.ops[progress.next]];
}

absl::StatusOr<bool> ScheduleRunner::FollowReader(const PreparedSchedule::Queue& queue,
                                                  Progress& progress) {
  if (!progress.exposes) return false;
  const absl::StatusOr<uint64_t> num_read = LinkTo(queue.peer).num_exposed_read();
  if (!num_read.ok()) return Fail(queue.peer, num_read.status());
  const bool has_moved = progress.num_read < *num_read;
  while (progress.num_read < *num_read) {
    const uint32_t index = queue.ops[progress.being_read];
    const uint64_t left = IsExposed(progress, index) ? ends_[index] - positions_[index] : 0;
    if (left == 0) {
      ++progress.being_read;
      continue;
    }
    const uint64_t count = std::min(left, *num_read - progress.num_read);
    positions_[index] += count;
    progress.num_read += count;
  }
  return has_moved;
}

absl::StatusOr<size_t> ScheduleRunner::Expose(Progress& progress,
                                              uint32_t index,
                                              size_t num_bytes) {
  // Whole elements, so that the peer need not put one together.
  const size_t whole = num_bytes - num_bytes % element_bytes_;
  const int peer = call_.schedule->ops()[index].peer;
  PUSHPULL_ASSIGN_OR_RETURN(
      const size_t exposed,
      LinkTo(peer).Expose(call_.values.subspan(progress.exposed_until, whole)));
  num_exposed_[static_cast<size_t>(peer)] += exposed;
  return exposed;
}

absl::StatusOr<bool> ScheduleRunner::AdvanceQueue(const PreparedSchedule::Queue& queue,
                                                  Progress& progress) {
  if (progress.next == queue.ops.size()) return false;
  const uint32_t index = queue.ops[progress.next];
  const ScheduleOp& op = call_.schedule->ops()[index];
  const uint64_t limit = LimitOf(index);
  const bool is_exposed = IsExposed(progress, index);
  uint64_t& position = is_exposed ? progress.exposed_until : positions_[index];
  if (limit <= position) return false;
  const size_t header_before = progress.header_bytes;
  PUSHPULL_ASSIGN_OR_RETURN(const bool is_agreed, MoveHeader(queue, progress));
  const bool has_moved = progress.header_bytes > header_before;
  if (!is_agreed) return has_moved;
  const size_t wanted = std::min<uint64_t>(limit - position, kMoveBytes);
  const absl::StatusOr<size_t> moved =
      is_exposed ? Expose(progress, index, wanted) : Move(op, position, wanted);
  if (!moved.ok()) return Fail(queue.peer, moved.status());
  position += *moved;
  if (queue.is_send) bytes_sent_ += *moved;
  if (position == ends_[index]) {
    EndOp(op);
    ++progress.next;
    --num_left_;
    BeginOp(queue, progress);
  }
  return has_moved || *moved > 0;
}

// True once the header is sent or received.
absl::StatusOr<bool> ScheduleRunner::MoveHeader(const PreparedSchedule::Queue& queue,
                                                Progress& progress) {
  if (queue.peer < 0 || progress.header_bytes == kCallHeaderBytes) return true;
  PeerLink& link = LinkTo(queue.peer);
  if (queue.is_send) {
    const absl::StatusOr<size_t> sent =
        link.Send(std::span<const std::byte>(header_).subspan(progress.header_bytes));
    if (!sent.ok()) return Fail(queue.peer, sent.status());
    progress.header_bytes += *sent;
    return progress.header_bytes == kCallHeaderBytes;
  }
  const absl::StatusOr<std::span<const std::byte>> bytes =
      link.Peek(kCallHeaderBytes, kCallHeaderBytes + kReadWithHeader);
  if (!bytes.ok()) return Fail(queue.peer, bytes.status());
  if (bytes->empty()) return false;
  const absl::Status agreed = CheckCallHeader(call_.header, bytes->first(kCallHeaderBytes));
  if (!agreed.ok()) return Fail(queue.peer, agreed);
  link.Consume(kCallHeaderBytes);
  progress.header_bytes = kCallHeaderBytes;
  return true;
}

absl::StatusOr<size_t> ScheduleRunner::Move(const ScheduleOp& op, uint64_t at, size_t num_bytes) {
  // Reductions take whole elements; if the limit is within one, that element waits.
  const size_t whole = num_bytes - num_bytes % element_bytes_;
  switch (op.kind) {
    case OpKind::kSend:
      return LinkTo(op.peer).Send(call_.values.subspan(at, num_bytes));
    case OpKind::kReceive:
      return LinkTo(op.peer).Receive(call_.values.subspan(at, num_bytes));
    case OpKind::kReceiveScratch:
      return LinkTo(op.peer).Receive(call_.scratch.subspan(at, num_bytes));
    case OpKind::kReceiveReduce:
      return ReceiveReduce(op, call_.values.subspan(at, whole));
    case OpKind::kScratchReduce:
      return ReceiveReduce(op, call_.scratch.subspan(at, whole));
    case OpKind::kFold: {
      const std::span<std::byte> sum = call_.scratch.subspan(at, whole);
      call_.op->Reduce(sum, call_.values.subspan(at, whole));
      if (whole > 0) std::memcpy(call_.values.data() + at, sum.data(), whole);
      return whole;
    }
    case OpKind::kFinish:
      call_.op->Finish(call_.ranks, call_.values.subspan(at, whole));
      return whole;
  }
  return 0;
}

// Reduces directly from the link's memory.
absl::StatusOr<size_t> ScheduleRunner::ReceiveReduce(const ScheduleOp& op,
                                                     std::span<std::byte> into) {
  if (into.empty()) return 0;
  PeerLink& link = LinkTo(op.peer);
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                            link.Peek(element_bytes_, into.size()));
  const size_t available = std::min(bytes.size(), into.size());
  const size_t whole = available - available % element_bytes_;
  if (whole == 0) return 0;
  call_.op->Reduce(into.first(whole), bytes.first(whole));
  link.Consume(whole);
  return whole;
}

void ScheduleRunner::EndOp(const ScheduleOp& op) {
  if (op.kind == OpKind::kSend) LinkTo(op.peer).EndSent();
  if (IsReceive(op.kind)) LinkTo(op.peer).EndReceived();
}

const std::vector<LinkWants>& ScheduleRunner::Wants() {
  wants_.assign(links_.links.size(), {});
  const std::vector<PreparedSchedule::Queue>& queues = call_.schedule->queues();
  for (size_t i = 0; i < queues.size(); ++i) {
    const PreparedSchedule::Queue& queue = queues[i];
    if (queue.peer < 0 || progress_[i].next == queue.ops.size()) continue;
    const uint32_t index = queue.ops[progress_[i].next];
    // One that waits for another operation continues when that one does.
    if (LimitOf(index) <= Continuation(progress_[i], index)) continue;
    LinkWants& wants = wants_[static_cast<size_t>(queue.peer)];
    (queue.is_send ? wants.room : wants.bytes) = true;
  }
  for (size_t peer = 0; peer < wants_.size(); ++peer) {
    if (links_.links[peer] != nullptr && links_.links[peer]->has_unsent()) wants_[peer].room = true;
  }
  return wants_;
}

}  // namespace pushpull
