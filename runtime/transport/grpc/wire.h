// SPDX-License-Identifier: Apache-2.0
//
// One bidirectional gRPC stream, without gRPC's headers: messages of bytes in both directions, each
// with complete frames of the tcp channel, one after the other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/tls/peer_identity.h"
#include "runtime/transport/grpc/payload_loans.h"

namespace pushpull {

class GrpcStream;

// The method of every stream; its messages are not protobuf.
inline constexpr char kStreamMethod[] = "/pushpull.v1.DataPlane/Frames";

// A batch of 256 KiB may end with a frame of the largest size.
inline constexpr int kMessageBytesMax = 2 << 20;

// Owned bytes, then lent ones.
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

// Stays alive until gRPC is done with it. Thread-safe.
class Wire {
 public:
  virtual ~Wire() = default;
  // Called first; on the accepting side again when the connection moves to another stream.
  virtual void Start(std::shared_ptr<GrpcStream> stream) = 0;
  // At most one read and one write are outstanding.
  virtual void Read() = 0;
  virtual void Write(OutgoingMessage message) = 0;
  // Ends the stream at once; unsent messages are dropped. No events follow, except one in progress.
  // On the connecting side it waits until gRPC has closed the connection, so it must not be called
  // on gRPC's threads. Each started wire must be ended.
  virtual void End() = 0;
  // Writes `message`, then ends. No Write may be outstanding.
  virtual void EndWith(OutgoingMessage message) = 0;
  // host:port of the peer; empty if unknown.
  virtual std::string peer() const = 0;
  // The peer's identity, as in FrameStream::identity.
  virtual absl::StatusOr<PeerIdentity> identity() const = 0;
};

}  // namespace pushpull
