// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/trace_recorder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/transport/peer_clock.h"

namespace pushpull {
namespace {

// Moves the first `count` elements, or all, into a new vector.
template <typename T>
std::vector<T> TakeFirst(std::vector<T>& from, size_t count) {
  const auto end = from.begin() + static_cast<ptrdiff_t>(std::min(count, from.size()));
  std::vector<T> taken(std::make_move_iterator(from.begin()), std::make_move_iterator(end));
  from.erase(from.begin(), end);
  return taken;
}

}  // namespace

void TraceRecorder::SetTensors(const std::vector<PlacedTensor>& tensors) {
  tensors_.clear();
  for (const PlacedTensor& tensor : tensors)
    tensors_.push_back({.name = tensor.spec.name, .first_chunk = tensor.first_chunk});
  std::ranges::sort(tensors_, {}, &TracedTensor::first_chunk);
}

void TraceRecorder::Start(const TraceSteps& order, std::optional<Step> first, SteadyTime now) {
  order_ = order;
  deadline_ = now + order.within;
  first_step_ = first;
  is_complete_ = false;
  pushes_.clear();
  spans_.clear();
  offsets_.clear();
  left_out_ = 0;
  is_on_.store(true, std::memory_order_relaxed);
}

void TraceRecorder::Record(const AnsweredPush& push,
                           const PushTimes& times,
                           const PublishedTiming& timing) {
  if (!first_step_) first_step_ = push.step;
  // A program that pushes only some of its tensors never has all chunks back. By the second step
  // after the last one, the last one's answers have arrived: pushes of one tensor are sequential.
  if (push.step > end_step()) is_complete_ = true;
  if (push.step < *first_step_ || push.step >= end_step() || !HasRoom()) return;
  offsets_[push.server] = NanosecondsOf(push.offset);
  pushes_.push_back({.server = push.server,
                     .chunk = push.chunk,
                     .step = push.step,
                     .ready = NanosecondsOf(times.ready),
                     .taken_up = NanosecondsOf(times.taken_up),
                     .encode_ns = NanosecondsOf(times.reduce + times.encode),
                     .sent = timing.push_sent_at,
                     .received = NanosecondsOf(times.received),
                     .applied = NanosecondsOf(times.applied),
                     .received_at = timing.received_at,
                     .server_queue_ns = timing.server_queue_ns,
                     .sum_ns = timing.sum_ns,
                     .wait_ns = timing.wait_ns,
                     .optimize_ns = timing.optimize_ns,
                     .replicate_ns = timing.replicate_ns,
                     .published_at = timing.published_at});
}

std::optional<uint64_t> TraceRecorder::TraceOf(Step step) const {
  const bool is_traced = is_on() && first_step_ && step >= *first_step_ && step < end_step();
  return is_traced ? std::optional(order_.number) : std::nullopt;
}

void TraceRecorder::OnSynchronized(Step step) {
  if (first_step_ && step.value() + 1 >= end_step().value()) is_complete_ = true;
}

void TraceRecorder::AddSpan(TracedSpan span) {
  if (!is_on() || !HasRoom()) return;
  span.name.resize(std::min(span.name.size(), TraceReport::kNameBytesMax));
  spans_.push_back(std::move(span));
}

bool TraceRecorder::HasRoom() {
  if (pushes_.size() + spans_.size() < order_.pushes_max) return true;
  ++left_out_;
  return false;
}

std::vector<TraceReport> TraceRecorder::TakeIfOver(SteadyTime now) {
  if (!is_on() || (!is_complete_ && now < deadline_)) return {};
  std::vector<TraceReport> reports;
  do {
    TraceReport report{.number = order_.number, .worker = worker_};
    report.pushes = TakeFirst(pushes_, TraceReport::kPushesMax);
    report.spans = TakeFirst(spans_, TraceReport::kPushesMax);
    report.tensors = TensorsOf(report.pushes);
    report.clocks = ClocksOf(report.pushes);
    reports.push_back(std::move(report));
  } while (!pushes_.empty() || !spans_.empty());
  reports.back().left_out = left_out_;
  reports.back().is_last = true;
  is_on_.store(false, std::memory_order_relaxed);
  first_step_.reset();
  pushes_.shrink_to_fit();
  return reports;
}

std::vector<TracedTensor> TraceRecorder::TensorsOf(const std::vector<TracedPush>& pushes) const {
  std::set<ChunkId> chunks;
  for (const TracedPush& push : pushes) chunks.insert(push.chunk);
  std::vector<TracedTensor> used;
  for (const ChunkId chunk : chunks) {
    const auto next = std::ranges::upper_bound(tensors_, chunk, {}, &TracedTensor::first_chunk);
    if (next == tensors_.begin()) continue;
    const TracedTensor& tensor = *std::prev(next);
    if (used.empty() || used.back().first_chunk != tensor.first_chunk) used.push_back(tensor);
  }
  return used;
}

std::vector<TracedClock> TraceRecorder::ClocksOf(const std::vector<TracedPush>& pushes) const {
  std::set<ServerId> servers;
  for (const TracedPush& push : pushes) servers.insert(push.server);
  std::vector<TracedClock> clocks;
  for (const ServerId server : servers)
    clocks.push_back({.server = server, .offset_ns = offsets_.at(server)});
  return clocks;
}

}  // namespace pushpull
