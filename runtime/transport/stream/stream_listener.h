// SPDX-License-Identifier: Apache-2.0
//
// The accepting side: accepts sockets and receives hellos on the first loop, then moves each
// connection to the loop of the lane it asked for.
//
//   accept -> hello -> Admit -> move to the lane's loop -> ack -> OnChannel
//               '-- invalid hello, end or timeout --> OnRejected
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/transport/acceptor_gate.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/stream/frame_stream.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// What all connections of one listener share.
struct AcceptContext {
  AcceptContext(std::vector<EventLoop*> lanes,
                const TransportOptions& transport_options,
                ChannelAcceptor& acceptor)
      : loops(std::move(lanes)), options(transport_options), gate(acceptor) {}

  const std::vector<EventLoop*> loops;  // one per lane; handshakes run on the first
  const TransportOptions options;
  AcceptorGate gate;
};

// Outlives the listener until the first loop has processed the listener's end. Confined to that
// loop, except for the constructor and Shut.
class StreamAcceptor : public std::enable_shared_from_this<StreamAcceptor> {
 public:
  // `socket` is listening.
  StreamAcceptor(std::shared_ptr<AcceptContext> context, FileDescriptor socket);
  virtual ~StreamAcceptor();
  StreamAcceptor(const StreamAcceptor&) = delete;
  StreamAcceptor& operator=(const StreamAcceptor&) = delete;

  void Watch();
  // From now on the port is free and the ChannelAcceptor is no longer called. Thread-safe.
  void Shut();
  void End();

  int socket() const { return socket_.get(); }
  EventLoop& loop() const { return *context_->loops.front(); }

 protected:
  const AcceptContext& context() const { return *context_; }
  // Waits for the stream's hello.
  void Receive(std::shared_ptr<FrameStream> stream);
  bool is_ended() const { return is_ended_; }

 private:
  class Handshake;

  // Makes a stream from an accepted connection, now or later, and calls Receive with it.
  virtual void TakeSocket(FileDescriptor socket) = 0;

  void Accept();
  void PauseAfter(const absl::Status& why);

  const std::shared_ptr<AcceptContext> context_;
  FileDescriptor socket_;
  std::map<uint64_t, std::shared_ptr<Handshake>> handshakes_;  // the oldest first
  uint64_t next_number_ = 0;
  Executor::TimerId retry_ = 0;
  bool is_ended_ = false;
};

// Thread-safe. The destructor waits until nothing is being handed to the ChannelAcceptor, which
// must not call the destructor.
class StreamListener final : public Listener {
 public:
  explicit StreamListener(std::shared_ptr<StreamAcceptor> acceptor);
  ~StreamListener() override;
  StreamListener(const StreamListener&) = delete;
  StreamListener& operator=(const StreamListener&) = delete;

  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<StreamAcceptor> acceptor_;
  const std::string address_;
};

}  // namespace pushpull
