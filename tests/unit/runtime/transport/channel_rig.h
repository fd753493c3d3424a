// SPDX-License-Identifier: Apache-2.0
//
// Two nodes, a client and a server, over one kind of transport and real event loops: what the
// conformance suite runs on. A further transport needs one more Rig.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/stream/transport_options.h"
#include "tests/fakes/frame_recorder.h"

namespace pushpull {

struct RigOptions {
  size_t send_queue_frames_max = 65536;
  // As few bytes in flight as possible, so that a sender soon has to wait.
  bool has_small_buffers = false;
};

class Rig {
 public:
  virtual ~Rig() = default;
  virtual Transport& client() = 0;
  virtual Transport& server() = 0;
  // What the server listens on, with port 0.
  virtual std::string listen_address() const = 0;
  // An address where nobody listens.
  virtual std::string deserted_address() const = 0;
};

struct RigKind {
  const char* name;
  std::unique_ptr<Rig> (*make)(const RigOptions& options);
  // A payload is complete when its header arrives, so that its sender's death cannot truncate it.
  bool has_whole_payloads = false;
};
inline void PrintTo(const RigKind& kind, std::ostream* out) {
  *out << kind.name;
}

// All that the conformance suite covers.
std::vector<RigKind> AllRigKinds();

std::unique_ptr<Rig> MakeTcpRig(const RigOptions& options);
std::unique_ptr<Rig> MakeTcpRig(const TransportOptions& client, const TransportOptions& server);
// Both members of one job, in one folder of shared memory.
std::unique_ptr<Rig> MakeShmRig(const RigOptions& options);
// The same over TLS.
std::unique_ptr<Rig> MakeShmTlsRig(const RigOptions& options);
// Over TCP with TLS.
std::unique_ptr<Rig> MakeTlsRig(const RigOptions& options);
std::unique_ptr<Rig> MakeGrpcRig(const RigOptions& options);
std::unique_ptr<Rig> MakeGrpcRig(const TransportOptions& client, const TransportOptions& server);
// Over gRPC with TLS.
std::unique_ptr<Rig> MakeGrpcTlsRig(const RigOptions& options);
std::unique_ptr<Rig> MakeInprocRig(const RigOptions& options);

// Runs `task` on `executor` and waits for its end; false after ten seconds.
bool RunOn(Executor& executor, const std::function<void()>& task);

// A rig with a listener, and the channels between its nodes. Channels end before the rig.
class ChannelPair {
 public:
  explicit ChannelPair(std::unique_ptr<Rig> rig);
  ~ChannelPair();
  ChannelPair(const ChannelPair&) = delete;
  ChannelPair& operator=(const ChannelPair&) = delete;

  Rig& rig() { return *rig_; }
  RecordingAcceptor& acceptor() { return *acceptor_; }
  const std::string& address() const { return address_; }
  // For what is to be set in the acceptor before it is used.
  void Listen();
  void StopListening() { listener_.reset(); }

  // A request to the rig's server as worker-7.
  ConnectRequest Request(uint32_t lane = 0) const;
  // Waits for the outcome; kDeadlineExceeded after ten seconds more than the request's deadline.
  absl::StatusOr<std::shared_ptr<RecordedChannel>> Connect(
      ConnectRequest request, const std::function<void(FrameRecorder&)>& prepare = {});
  // Connects both ends; a test failure, and ends that are null, where that does not work.
  void ConnectBoth(uint32_t lane = 0, const std::function<void(FrameRecorder&)>& prepare = {});

  // The ends that ConnectBoth made last.
  RecordedChannel& client() { return *client_; }
  RecordedChannel& server() { return *server_; }

  // Destroys the channel on its executor.
  static void Drop(RecordedChannel& end);

 private:
  std::unique_ptr<Rig> rig_;
  std::unique_ptr<RecordingAcceptor> acceptor_;
  std::unique_ptr<Listener> listener_;
  std::string address_;
  std::vector<std::shared_ptr<RecordedChannel>> ends_;
  std::shared_ptr<RecordedChannel> client_;
  std::shared_ptr<RecordedChannel> server_;
};

// Of shared memory, empty, removed at its end with all that is in it.
class TemporaryShmFolder {
 public:
  TemporaryShmFolder();
  ~TemporaryShmFolder();
  TemporaryShmFolder(const TemporaryShmFolder&) = delete;
  TemporaryShmFolder& operator=(const TemporaryShmFolder&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;

 private:
  std::string path_ = "/dev/shm/pushpull-test-XXXXXX";
};

// `num_bytes` that differ from place to place and from seed to seed.
std::vector<std::byte> Pattern(size_t num_bytes, uint32_t seed = 0);

// A push of chunk `number` that does not own its payload.
OutgoingFrame PushFrame(uint64_t number, std::span<const std::byte> payload, uint8_t priority = 0);

// Sends on the channel's executor, all in one turn.
void SendAll(RecordedChannel& from, std::vector<OutgoingFrame> frames);
void SendOne(RecordedChannel& from, OutgoingFrame frame);

}  // namespace pushpull
