// SPDX-License-Identifier: Apache-2.0
//
// The transport of nodes that live in one process, over real loops or a test's fake clock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/transport/channel.h"
#include "tests/fakes/inproc/inproc_link.h"
#include "tests/fakes/inproc/inproc_network.h"

namespace pushpull {

// Thread-safe.
class InprocTransport final : public Transport {
 public:
  // `network` and the executors outlive the transport; lane i runs on lanes[i]. `name`
  // identifies this node in InprocNetwork's faults, "node-<n>" if empty.
  InprocTransport(InprocNetwork& network, std::vector<Executor*> lanes, std::string name = "");
  // Frames and connections in flight to it are dropped.
  ~InprocTransport() override;
  InprocTransport(const InprocTransport&) = delete;
  InprocTransport& operator=(const InprocTransport&) = delete;

  const std::string& name() const { return node_->name(); }
  size_t lane_count() const override { return lanes_.size(); }
  Executor& lane(size_t index) override { return *lanes_[index]; }
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   ChannelAcceptor& acceptor) override;
  // Hellos are never lost or delayed.
  void Connect(ConnectRequest request, ConnectDone done) override;

 private:
  InprocNetwork& network_;
  const std::vector<Executor*> lanes_;
  const std::shared_ptr<InprocNode> node_;
};

}  // namespace pushpull
