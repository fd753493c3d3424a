// SPDX-License-Identifier: Apache-2.0
//
// One bidirectional stream of gRPC, without its headers: messages of bytes in both directions, the
// frames of the tcp channel one after the other, whole ones in each message.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/deadline.h"
#include "runtime/transport/grpc/payload_loans.h"

namespace pushpull {

// The method of every stream; there is no message of protobuf in it.
inline constexpr char kStreamMethod[] = "/pushpull.v1.DataPlane/Frames";

// A batch of 256 KiB may end with a frame of the largest size.
inline constexpr int kMessageBytesMax = 2 << 20;

// Bytes that are its own, then bytes that are lent.
struct MessagePart {
  std::vector<std::byte> own;
  std::unique_ptr<PayloadLoan> payload;  // may be null
};
using OutgoingMessage = std::vector<MessagePart>;

struct IncomingMessage {
  std::vector<std::span<const std::byte>> slices;  // cut anywhere
  std::shared_ptr<const void> owner;
  SteadyTime received_at;
};

// Told what happens, on gRPC's threads.
class WireEvents {
 public:
  virtual ~WireEvents() = default;
  // The answer to a Read.
  virtual void OnRead(IncomingMessage message) = 0;
  // The message of the last Write has left for the peer as far as its window allows; the next one
  // may follow.
  virtual void OnWritten() = 0;
  // kUnavailable: the connection or the peer's end is gone. Other codes: this peer cannot be talked
  // to. May be told more than once, and after it OnRead, of what was there before.
  virtual void OnEnded(const absl::Status& why) = 0;
};

// Lives until gRPC is through with it, whoever still refers to it. Thread-safe.
class Wire {
 public:
  virtual ~Wire() = default;
  // Begins; called once and first.
  virtual void Start(std::shared_ptr<WireEvents> events) = 0;
  // One read and one write at a time.
  virtual void Read() = 0;
  virtual void Write(OutgoingMessage message) = 0;
  // Ends the stream, at once and without what was not sent. No events after it, but for one that is
  // being told. Where it has a connection of its own, it waits for gRPC to end that, and is not
  // called by gRPC's threads. Each wire that was started is ended.
  virtual void End() = 0;
  // Writes this, then ends. Not while a Write is under way.
  virtual void EndWith(OutgoingMessage message) = 0;
  // host:port of the peer, as far as it is known.
  virtual std::string peer() const = 0;
};

}  // namespace pushpull
