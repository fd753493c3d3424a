// SPDX-License-Identifier: Apache-2.0
//
// The interfaces of the data path. A Transport connects and listens; a Channel carries frames in
// both directions between one worker, or one lane of another server, and one lane of one server. A
// lane is one thread of the server's data path. Every chunk belongs to exactly one lane and each
// worker has one channel to each lane, so nothing on a tensor's path needs a lock.
//
//   worker  --Connect(address, lane)-->  Listener --> ChannelAcceptor::OnChannel on that lane
//           <========== frames, each received straight into its final buffer ==========>
//
// Implementations: tcp/ (our own frames over sockets, with payloads through shared memory, shm/, if
// both ends can reach it), grpc/ (the same frames in a gRPC stream), and for tests
// tests/fakes/inproc (same process, with delay, loss, duplication and reordering from a seed).
// tests/unit/runtime/transport/conformance_test.cc specifies what every implementation must do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// Bytes to send, and an owner that keeps them alive and unchanged until the channel has read them
// for the last time. `owner` may be null if the protocol itself keeps the bytes (a worker keeps a
// gradient until its version is back).
struct Payload {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  // The bytes do not change until the peer has answered or the job ends. A peer that shares this
  // memory (Channel::Share) may then read them in place, even after the channel is done with them.
  bool is_settled = false;
};

struct OutgoingFrame {
  // The channel overwrites meta_bytes, payload_bytes, sent_at, payload_checksum and its flag.
  FrameHeader header;
  std::vector<std::byte> meta;
  Payload payload;
};

struct ReceivedFrame {
  FrameHeader header;
  std::span<const std::byte> meta;  // valid during the call
  std::span<std::byte> payload;     // what PayloadBuffer returned; empty if discarded
  SteadyTime received_at;           // when the last byte arrived
  // Instead of `payload`, if FrameHandler::TakesInPlace returned true. It is in the peer's memory:
  // the peer may change it at any time, and it stays mapped while its owner is held.
  Payload in_place = {};
};

class Channel;
class SharedMemory;

// Called with the reason why a peer on this host could not map memory offered to it.
using ShareRefused = std::function<void(const absl::Status& why)>;

// Receives what arrives on a channel. Called on the channel's executor.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;

  // The header of a frame with payload has arrived. Returns where the payload goes: exactly
  // header.payload_bytes long and valid until OnFrame, OnPayloadLost or OnClosed; or an empty span,
  // then the payload is read and dropped. Not called for frames without payload.
  virtual std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) = 0;

  // The payload of this frame is in memory that the peer shares. Return true to leave it there:
  // OnFrame follows at once. Return false, and PayloadBuffer is called as for any other frame.
  virtual bool TakesInPlace(Channel&, const FrameHeader&) { return false; }

  // The frame is complete and its checksums match.
  virtual void OnFrame(Channel& channel, const ReceivedFrame& frame) = 0;

  // PayloadBuffer or TakesInPlace was called for this frame, but its rest will never arrive.
  // OnClosed follows.
  virtual void OnPayloadLost(Channel& channel, const FrameHeader& header) = 0;

  // The channel is closed, `why` names the peer; called once, nothing follows. Not called after the
  // owner's own Close.
  virtual void OnClosed(Channel& channel, const absl::Status& why) = 0;
};

// One end of a connection. Thread-confined to its executor. Destroying it closes it without a call
// to the handler.
class Channel {
 public:
  virtual ~Channel() = default;

  // Starts delivering frames to `handler` (not owned, outlives the channel). Called once.
  virtual void Start(FrameHandler& handler) = 0;

  // Queues a frame; never blocks. Smaller priorities are sent first, equal ones in order. A closed
  // channel drops it. The queue is bounded: when it is full, because the peer has stopped reading,
  // the channel closes with kResourceExhausted.
  virtual void Send(OutgoingFrame frame) = 0;

  // No more frames in either direction; queued ones are dropped.
  virtual void Close() = 0;

  virtual size_t queued_bytes() const = 0;

  // True: every sent frame arrives, unless OnClosed is called. False: the sender must resend what
  // is not answered in time.
  virtual bool is_reliable() const = 0;

  // Offset of the peer's steady clock: peer time = own time + offset. Zero on the same host.
  virtual Duration clock_offset() const = 0;

  // Offers memory to a peer that can map it: once it has, settled payloads in it are not copied.
  // Nothing else changes; does nothing on other channels. The channel holds the memory until it
  // ends. `on_refused` is called if the peer should be able to map it but cannot; may be null.
  virtual void Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) = 0;

  // "tcp", "shm", "grpc" or "inproc": the `channel` label of the metrics.
  virtual absl::string_view kind() const = 0;
  virtual const std::string& peer() const = 0;  // e.g. "server-1 at 127.0.0.1:7171"
};

// How a connecting worker or server introduces itself before any other frame.
struct Hello {
  std::string job;  // a peer of another job is rejected
  WorkerId worker;
  Incarnation incarnation;
  uint32_t lane = 0;               // the accepting server's lane to connect to
  std::optional<ServerId> server;  // set by a server that joins shards; `worker` is unused then
};

// "worker-1" or "server-2": the sender of the hello, as its certificate must name it.
std::string PeerName(const Hello& hello);

// Decides whether to accept connections and takes them over.
class ChannelAcceptor {
 public:
  virtual ~ChannelAcceptor() = default;

  // OK, or the reason that the connecting side's Connect returns. Thread-safe.
  virtual absl::Status Admit(const Hello& hello) = 0;

  // A new connection; called on the executor of lane `hello.lane`. The acceptor calls Start.
  virtual void OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) = 0;

  // A connection was closed before it became a channel: no valid hello arrived in time. For
  // counters. Thread-safe.
  virtual void OnRejected(const absl::Status& why) = 0;
};

// Stops listening when destroyed; accepted channels stay open.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const std::string& address() const = 0;  // host:port with the actual port
};

struct ConnectRequest {
  std::string address;    // host:port
  std::string peer_name;  // e.g. "server-1", for error texts
  Hello hello;
  size_t local_lane = 0;  // which of this transport's executors the channel lives on
  Deadline deadline;
  // The server that must answer there, by its certificate; empty: any member of the job.
  std::optional<ServerId> server = {};
};

using ConnectDone = std::function<void(absl::StatusOr<std::unique_ptr<Channel>>)>;

// Owns or borrows the lanes' executors; outlives every channel and listener made from it.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual size_t lane_count() const = 0;
  virtual Executor& lane(size_t index) = 0;

  // The prefix of the address that a member advertises, so that nobody connects with another
  // transport (lane_link.cc); empty for tcp. Addresses of Listen and Connect do not have it.
  virtual absl::string_view scheme() const { return ""; }

  // Starts accepting at host:port; port 0 takes any free port. kAlreadyExists: the port is in use.
  // `acceptor` outlives the listener. Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           ChannelAcceptor& acceptor) = 0;

  // Connects in the background and calls `done` once on the executor of request.local_lane.
  // Thread-safe. Errors:
  //   kUnavailable       nobody answers there: retry
  //   kDeadlineExceeded  request.deadline has passed: retry
  //   any other          the peer's Admit rejected the hello: do not retry
  virtual void Connect(ConnectRequest request, ConnectDone done) = 0;
};

}  // namespace pushpull
