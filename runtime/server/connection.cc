// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/connection.h"

#include <utility>

#include "runtime/server/lane.h"

namespace pushpull {

Connection::Connection(Lane& lane, Hello hello, std::unique_ptr<Channel> channel)
    : lane_(lane), hello_(std::move(hello)), channel_(std::move(channel)) {}

std::span<std::byte> Connection::PayloadBuffer(Channel&, const FrameHeader& header) {
  return lane_.PlacePayload(*this, header);
}

bool Connection::TakesInPlace(Channel&, const FrameHeader& header) {
  return lane_.TakesInPlace(*this, header);
}

void Connection::OnFrame(Channel&, const ReceivedFrame& frame) {
  lane_.OnFrame(*this, frame);
}

void Connection::OnPayloadLost(Channel&, const FrameHeader&) {
  lane_.OnPayloadLost(*this);
}

void Connection::OnClosed(Channel&, const absl::Status& why) {
  lane_.OnClosed(*this, why);
}

}  // namespace pushpull
