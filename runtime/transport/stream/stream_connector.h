// SPDX-License-Identifier: Apache-2.0
//
// The connecting side until there is a channel: dial, send the hello, wait for its answer.
//
//   Begin -> [subclass dials] -> SendHello -> ack -> done(channel)
//     '-- deadline, no connection, refusal --> done(error)
#pragma once

#include <memory>
#include <string>

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/frame_stream.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Keeps itself alive until it has called `done`, once. Thread-confined to the loop.
class StreamConnector : private FrameStreamOwner,
                        public std::enable_shared_from_this<StreamConnector> {
 public:
  StreamConnector(EventLoop& loop,
                  const TransportOptions& options,
                  ConnectRequest request,
                  ConnectDone done);
  ~StreamConnector() override = default;
  StreamConnector(const StreamConnector&) = delete;
  StreamConnector& operator=(const StreamConnector&) = delete;

  // Starts the request's deadline.
  void Begin();

 protected:
  EventLoop& loop() { return loop_; }
  const TransportOptions& options() const { return options_; }
  const ConnectRequest& request() const { return request_; }
  const std::string& peer() const { return peer_; }
  bool is_done() const { return done_ == nullptr; }

  void SendHello(std::shared_ptr<FrameStream> stream);
  // `why` does not name the peer yet.
  void Fail(const absl::Status& why);

 private:
  // The stream was closed before it answered; `why` names the peer. Returns what Connect reports:
  // kUnavailable for anything that may change with time.
  virtual absl::Status Explain(const absl::Status& why) const = 0;
  virtual void StopDialing() {}

  // Called by the stream.
  void OnFrame(const ReceivedFrame& frame) override;
  void OnClosed(const absl::Status& why) override { Finish(Explain(why)); }

  absl::Status CheckServer() const;
  std::unique_ptr<Channel> MakeChannel(const ReceivedFrame& ack_frame, const HelloAckMeta& ack);
  void Finish(absl::StatusOr<std::unique_ptr<Channel>> result);

  EventLoop& loop_;
  const TransportOptions options_;
  const ConnectRequest request_;
  const std::string peer_;
  ConnectDone done_;
  std::shared_ptr<FrameStream> stream_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
