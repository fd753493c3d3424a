// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_channel.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

constexpr Duration kPingPeriod = std::chrono::seconds(1);

int64_t Nanoseconds(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

SteadyTime AtNanoseconds(int64_t nanoseconds) {
  return SteadyTime(std::chrono::nanoseconds(nanoseconds));
}

// The others are between the channels themselves.
bool IsForHandler(FrameType type) {
  return type >= FrameType::kInit && type < FrameType::kCredit;
}

}  // namespace

TcpChannel::TcpChannel(std::shared_ptr<TcpConnection> connection,
                       ClockRole role,
                       ClockEstimate clock)
    : connection_(std::move(connection)),
      role_(role),
      clock_(std::move(clock)),
      clock_offset_(role == ClockRole::kMeasures ? clock_.offset() : Duration::zero()) {}

TcpChannel::~TcpChannel() {
  Close();
}

void TcpChannel::Start(FrameHandler& handler) {
  handler_ = &handler;
  connection_->Start(*this);
  if (role_ == ClockRole::kMeasures) Ping();
}

void TcpChannel::Close() {
  StopPings();
  connection_->Close();
}

void TcpChannel::Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) {
  if (!connection_->has_shared_memory()) return;
  Send({.header = {.type = FrameType::kRegion},
        .meta = connection_->regions().Offer(std::move(memory), std::move(on_refused)),
        .payload = {}});
}

// ---- frames ----

std::span<std::byte> TcpChannel::PayloadBuffer(const FrameHeader& header) {
  if (!IsForHandler(header.type)) return {};
  return handler_->PayloadBuffer(*this, header);
}

bool TcpChannel::TakesInPlace(const FrameHeader& header) {
  return IsForHandler(header.type) && handler_->TakesInPlace(*this, header);
}

void TcpChannel::OnFrame(const ReceivedFrame& frame) {
  switch (frame.header.type) {
    case FrameType::kPing:
      return AnswerPing(frame);
    case FrameType::kPong:
      return TakePong(frame);
    case FrameType::kCredit:
      return TakeCredit(frame);
    case FrameType::kRegion:
      return AnswerRegion(frame);
    case FrameType::kHello:
    case FrameType::kHelloAck:
      return connection_->Fail(absl::DataLossError("sent a second hello"));
    default:
      return handler_->OnFrame(*this, frame);
  }
}

void TcpChannel::OnPayloadLost(const FrameHeader& header) {
  if (IsForHandler(header.type)) handler_->OnPayloadLost(*this, header);
}

void TcpChannel::OnClosed(const absl::Status& why) {
  StopPings();
  handler_->OnClosed(*this, why);
}

void TcpChannel::TakeCredit(const ReceivedFrame& credit) {
  ByteReader reader(credit.meta);
  const auto num_bytes = reader.Get<uint64_t>();
  const absl::Status taken =
      reader.ok() ? connection_->TakeCredit(num_bytes) : absl::DataLossError("a credit of nothing");
  if (!taken.ok()) connection_->Fail(taken);
}

void TcpChannel::AnswerRegion(const ReceivedFrame& message) {
  if (!connection_->has_shared_memory())
    return connection_->Fail(absl::DataLossError("offers shared memory over a socket"));
  absl::StatusOr<std::vector<std::byte>> answer = connection_->regions().Answer(message.meta);
  if (!answer.ok()) return connection_->Fail(answer.status());
  if (answer->empty()) return;
  Send({.header = {.type = FrameType::kRegion}, .meta = *std::move(answer), .payload = {}});
}

// ---- clocks ----

void TcpChannel::Ping() {
  // One at a time: a peer that does not answer must not be sent ever more.
  if (!std::exchange(is_ping_under_way_, true)) {
    ByteWriter meta;
    meta.Put(int64_t{std::chrono::nanoseconds(clock_offset_).count()});
    Send({.header = {.type = FrameType::kPing}, .meta = meta.Take(), .payload = {}});
  }
  ping_timer_ = connection_->loop().RunAfter(kPingPeriod, [this] { Ping(); });
}

void TcpChannel::AnswerPing(const ReceivedFrame& ping) {
  ByteReader reader(ping.meta);
  const std::chrono::nanoseconds our_offset(reader.Get<int64_t>());
  if (reader.ok() && role_ == ClockRole::kIsTold) clock_offset_ = -our_offset;
  ByteWriter meta;
  meta.Put(ping.header.sent_at);
  meta.Put(Nanoseconds(ping.received_at));
  Send({.header = {.type = FrameType::kPong}, .meta = meta.Take(), .payload = {}});
}

void TcpChannel::TakePong(const ReceivedFrame& pong) {
  is_ping_under_way_ = false;
  ByteReader reader(pong.meta);
  const SteadyTime sent = AtNanoseconds(reader.Get<int64_t>());
  const SteadyTime peer_received = AtNanoseconds(reader.Get<int64_t>());
  if (!reader.ok() || role_ != ClockRole::kMeasures) return;
  clock_.Add({.sent = sent,
              .peer_received = peer_received,
              .peer_sent = AtNanoseconds(pong.header.sent_at),
              .received = pong.received_at});
  clock_offset_ = clock_.offset();
}

void TcpChannel::StopPings() {
  if (ping_timer_ != 0) connection_->loop().Cancel(std::exchange(ping_timer_, 0));
}

}  // namespace pushpull
