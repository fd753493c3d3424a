// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/inproc_end.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {
namespace {

// Small frames handled before the executor's other tasks get their turn.
constexpr int kFramesPerTurn = 64;

// The receiver must see what was sent, however late it comes.
Payload CopyOf(const Payload& payload) {
  auto copy = std::make_shared<std::vector<std::byte>>(payload.bytes.begin(), payload.bytes.end());
  const std::span<const std::byte> bytes(*copy);
  return {.bytes = bytes, .owner = std::move(copy)};
}

}  // namespace

InprocEnd::InprocEnd(InprocNetwork& network,
                     std::shared_ptr<InprocLink> link,
                     size_t side,
                     Executor& executor,
                     uint64_t seed)
    : network_(network),
      link_(std::move(link)),
      side_(side),
      executor_(executor),
      queue_(network.options().send_queue_frames_max),
      faults_(seed) {}

void InprocEnd::Start(Channel& channel, FrameHandler& handler) {
  channel_ = &channel;
  handler_ = &handler;
  PostSelf(is_closed_ ? &InprocEnd::Report : &InprocEnd::Pump);
}

void InprocEnd::Send(OutgoingFrame frame) {
  if (is_closed_) return;
  const absl::Status pushed = queue_.Push(std::move(frame));
  if (!pushed.ok()) {
    // Reported in a later turn: the caller is in the middle of something.
    executor_.Post([weak = weak_from_this(), pushed] {
      if (const auto self = weak.lock()) self->Fail(pushed);
    });
    return;
  }
  ScheduleFlush();
}

void InprocEnd::Close() {
  handler_ = nullptr;
  if (std::exchange(is_closed_, true)) return;
  link_->CloseFrom(side_);
  Release();
}

// ---- sending ----

void InprocEnd::ScheduleFlush() {
  if (!std::exchange(is_flush_scheduled_, true)) PostSelf(&InprocEnd::Flush);
}

void InprocEnd::Flush() {
  is_flush_scheduled_ = false;
  if (is_closed_ || !link_->is_open()) return;
  const size_t window = network_.options().window_bytes;
  while (!queue_.empty() && bytes_outstanding_ < window) Launch(queue_.Pop());
}

namespace {

// The header as the peer reads it: of what it does not know, a reader over a socket would say so.
FrameHeader AsRead(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  EncodeFrameHeader(header, bytes);
  const absl::StatusOr<FrameHeader> read = DecodeFrameHeader(bytes);
  PUSHPULL_CHECK(read.ok());
  return *read;
}

}  // namespace

void InprocEnd::Launch(OutgoingFrame frame) {
  const InprocFaults faults = network_.options().faults;
  const SteadyTime now = executor_.Now();
  frame.header.sent_at =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  frame.header = AsRead(frame.header);
  if (!faults.is_reliable() && !frame.payload.bytes.empty()) frame.payload = CopyOf(frame.payload);
  for (const Arrival& arrival : faults_.Next(faults)) {
    SteadyTime arrives_at = now + arrival.delay;
    if (!arrival.is_held_back) last_arrival_ = arrives_at = std::max(arrives_at, last_arrival_);
    const auto flight =
        std::make_shared<Flight>(Flight{next_flight_++, frame.header, frame.meta, frame.payload});
    outstanding_.emplace(flight->id, flight);
    bytes_outstanding_ += WireBytes(frame);
    link_->Post(1 - side_,
                [arrives_at, flight](InprocEnd& peer) { peer.Accept(arrives_at, flight); });
  }
}

void InprocEnd::OnDelivered(uint64_t flight) {
  const auto it = outstanding_.find(flight);
  if (it == outstanding_.end()) return;
  const Payload done = link_->TakePayload(*it->second);
  bytes_outstanding_ -= kFrameHeaderBytes + it->second->meta.size() + done.bytes.size();
  outstanding_.erase(it);
  if (!queue_.empty()) ScheduleFlush();
}

// ---- receiving ----

void InprocEnd::Accept(SteadyTime arrives_at, std::shared_ptr<const Flight> flight) {
  if (is_closed_) return;
  inbox_.emplace(std::pair(arrives_at, num_accepted_++), std::move(flight));
  Pump();
}

void InprocEnd::Pump() {
  for (int i = 0; i < kFramesPerTurn; ++i) {
    if (is_closed_ || handler_ == nullptr || reception_ || inbox_.empty() || !link_->is_open())
      return;
    const SteadyTime due = inbox_.begin()->first.first;
    if (due > executor_.Now()) return WakeAt(due);
    const std::shared_ptr<const Flight> flight = std::move(inbox_.begin()->second);
    inbox_.erase(inbox_.begin());
    if (flight->header.payload_bytes > 0) return BeginPayload(flight);
    Deliver(*flight, {});
  }
  PostSelf(&InprocEnd::Pump);
}

void InprocEnd::WakeAt(SteadyTime when) {
  if (wake_timer_ != 0) executor_.Cancel(wake_timer_);
  wake_timer_ = executor_.RunAt(when, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Pump();
  });
}

void InprocEnd::BeginPayload(std::shared_ptr<const Flight> flight) {
  const std::span<std::byte> place = handler_->PayloadBuffer(*channel_, flight->header);
  if (is_closed_) return;
  const size_t wanted = flight->header.payload_bytes;
  reception_ = {std::move(flight), place};
  if (!place.empty() && place.size() != wanted) {
    return Fail(absl::InternalError(
        absl::StrCat("a buffer of ", place.size(), " bytes for a payload of ", wanted)));
  }
  PostSelf(&InprocEnd::FinishPayload);
}

void InprocEnd::FinishPayload() {
  if (is_closed_ || !reception_) return;
  // When the link has ended, Fail has been posted and reports the payload as lost.
  if (!link_->CopyPayload(*reception_->flight, reception_->place)) return;
  const Reception done = *std::exchange(reception_, std::nullopt);
  Deliver(*done.flight, done.place);
  Pump();
}

void InprocEnd::Deliver(const Flight& flight, std::span<std::byte> payload) {
  link_->Post(1 - side_, [id = flight.id](InprocEnd& peer) { peer.OnDelivered(id); });
  handler_->OnFrame(*channel_,
                    {.header = flight.header,
                     .meta = flight.meta,
                     .payload = payload,
                     .received_at = executor_.Now()});
}

// ---- the end ----

void InprocEnd::Fail(const absl::Status& why) {
  if (std::exchange(is_closed_, true)) return;
  link_->CloseFrom(side_);
  failure_ = absl::Status(why.code(), absl::StrCat(peer(), ": ", why.message()));
  const std::optional<Reception> lost = std::exchange(reception_, std::nullopt);
  Release();
  // The handler may destroy the channel, which clears handler_.
  if (lost && handler_ != nullptr) handler_->OnPayloadLost(*channel_, lost->flight->header);
  Report();
}

void InprocEnd::FailAfter(Duration timeout) {
  if (is_closed_) return;
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("no answer for ", ToSeconds(timeout), " s"));
  fail_timer_ = executor_.RunAfter(timeout, [weak = weak_from_this(), why] {
    if (const auto self = weak.lock()) self->Fail(why);
  });
}

void InprocEnd::Report() {
  if (handler_ != nullptr) std::exchange(handler_, nullptr)->OnClosed(*channel_, failure_);
}

void InprocEnd::Release() {
  queue_.Clear();
  inbox_.clear();
  for (const auto& [id, flight] : outstanding_) link_->TakePayload(*flight);
  outstanding_.clear();
  for (Executor::TimerId* timer : {&wake_timer_, &fail_timer_}) {
    if (*timer != 0) executor_.Cancel(std::exchange(*timer, 0));
  }
}

void InprocEnd::PostSelf(void (InprocEnd::*method)()) {
  executor_.Post([weak = weak_from_this(), method] {
    if (const auto self = weak.lock()) ((*self).*method)();
  });
}

}  // namespace pushpull
