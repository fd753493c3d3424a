// SPDX-License-Identifier: Apache-2.0
//
// A handler that records what arrives on a channel, and an acceptor that keeps accepted channels.
// The test's thread can wait for both.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"

namespace pushpull {

struct RecordedFrame {
  FrameHeader header;
  std::vector<std::byte> meta;
  std::vector<std::byte> payload;            // a copy, unless `keeps_payloads` is off
  const std::byte* received_into = nullptr;  // where the channel put it; null where discarded
  Payload in_place;                          // set where it stays in the peer's memory
};

// Called on the channel's executor; read from any thread.
class FrameRecorder final : public FrameHandler {
 public:
  // Set before Start. Each is called after the event has been recorded, in the channel's own
  // callback.
  std::function<std::span<std::byte>(Channel&, const FrameHeader&)> place;  // instead of its own
  std::function<void(Channel&, const ReceivedFrame&)> on_frame;
  std::function<void(Channel&)> on_payload_lost;
  std::function<void(Channel&)> on_closed;
  bool keeps_payloads = true;
  bool takes_in_place = false;  // leave payloads in the peer's memory where possible

  std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) override;
  bool TakesInPlace(Channel&, const FrameHeader&) override { return takes_in_place; }
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel& channel, const FrameHeader& header) override;
  void OnClosed(Channel& channel, const absl::Status& why) override;

  // False: not within a minute, far beyond what any test needs, also under sanitizers.
  bool WaitForFrames(size_t count) const ABSL_LOCKS_EXCLUDED(mu_);
  bool WaitForClosed() const ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<RecordedFrame> frames() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t num_frames() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t num_payload_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  // "frame", "lost" and "closed" in the order in which they came.
  std::vector<std::string> events() const ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<absl::Status> closed() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::vector<std::byte> buffer_;  // on the executor

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<RecordedFrame> frames_ ABSL_GUARDED_BY(mu_);
  size_t num_payload_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

// One end of a connection, with the executor on which it lives.
struct RecordedChannel {
  Hello hello;
  Executor* executor = nullptr;
  std::unique_ptr<FrameRecorder> recorder;
  std::unique_ptr<Channel> channel;  // used and destroyed on the executor only
};

// Accepts hellos that pass `admit`. Its channels must be taken or dropped before their executors
// end.
class RecordingAcceptor final : public ChannelAcceptor {
 public:
  // `transport` outlives the acceptor.
  explicit RecordingAcceptor(Transport& transport) : transport_(transport) {}

  // Set before the listener exists.
  std::function<absl::Status(const Hello&)> admit;
  // Prepares the recorder of a new channel, on the channel's executor.
  std::function<void(FrameRecorder&)> prepare;

  absl::Status Admit(const Hello& hello) override;
  void OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) override;
  void OnRejected(const absl::Status& why) override;

  // The next accepted channel, null after a minute.
  std::shared_ptr<RecordedChannel> WaitForChannel() ABSL_LOCKS_EXCLUDED(mu_);
  // Null when none is there now; for executors that the test steps.
  std::shared_ptr<RecordedChannel> TakeChannel() ABSL_LOCKS_EXCLUDED(mu_);
  bool WaitForRejections(size_t count) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<absl::Status> rejections() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Transport& transport_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<std::shared_ptr<RecordedChannel>> channels_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Status> rejections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
