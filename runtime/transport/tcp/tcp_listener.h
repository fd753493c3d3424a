// SPDX-License-Identifier: Apache-2.0
//
// The accepting side: hears the hello on the first loop, then hands the socket to the loop of the
// lane that was asked for, which answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/tcp/tcp_options.h"

namespace pushpull {

// Thread-safe. The destructor waits until nothing is being handed to the acceptor; it is not called
// by the acceptor.
class TcpListener final : public Listener {
 public:
  // `socket` listens. The loops and `acceptor` outlive the listener.
  TcpListener(std::vector<EventLoop*> loops,
              const TcpOptions& options,
              FileDescriptor socket,
              ChannelAcceptor& acceptor);
  ~TcpListener() override;
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  const std::string& address() const override { return address_; }

 private:
  class State;

  const std::string address_;
  const std::shared_ptr<State> state_;
};

}  // namespace pushpull
