// SPDX-License-Identifier: Apache-2.0
//
// A connection to one lane of one server, from a worker or from a lane of another server; or from a
// worker to another worker of its group. It reconnects whenever it breaks. Its handler decides what
// travels over it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/executor.h"
#include "runtime/base/retry_pace.h"
#include "runtime/transport/channel.h"

namespace pushpull {

class LaneLink;

// Receives a link's events, on the link's executor.
class LaneLinkHandler {
 public:
  virtual ~LaneLinkHandler() = default;
  // Connected, for the first time or again: everything unanswered must be resent.
  virtual void OnLinkUp(LaneLink& link) = 0;
  // The server rejects this member; the link does not retry.
  virtual void OnLinkRefused(LaneLink& link, const absl::Status& why) = 0;
  // No connection for `lasted`; the link keeps retrying. Called at once, then at growing intervals.
  virtual void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) = 0;
  virtual std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) = 0;
  virtual bool TakesInPlace(LaneLink&, const FrameHeader&) { return false; }
  virtual void OnFrame(LaneLink& link, const ReceivedFrame& frame) = 0;
};

struct LaneLinkTarget {
  ServerId server = {};
  std::string address;  // as the server advertises it: scheme of its transport, host:port
  Hello hello;          // its lane is the server's lane
  size_t local_lane = 0;
  std::optional<WorkerId> worker = {};  // instead of a server: a worker, which has one lane

  std::string name() const { return worker ? ToString(*worker) : ToString(server); }
};

// Thread-confined to its executor, which is that of target.local_lane.
class LaneLink final : public FrameHandler {
 public:
  // Starts connecting. `transport`, `executor` and `handler` outlive the link.
  LaneLink(Transport& transport,
           Executor& executor,
           LaneLinkTarget target,
           LaneLinkHandler& handler);
  ~LaneLink() override { executor_.Cancel(retry_); }

  ServerId server() const { return target_.server; }
  const std::optional<WorkerId>& worker() const { return target_.worker; }
  const std::string& address() const { return target_.address; }
  uint32_t lane() const { return target_.hello.lane; }
  // Null while there is no connection; sending then waits for OnLinkUp.
  Channel* channel() { return channel_.get(); }

  std::span<std::byte> PayloadBuffer(Channel&, const FrameHeader& header) override {
    return handler_.PayloadBuffer(*this, header);
  }
  bool TakesInPlace(Channel&, const FrameHeader& header) override {
    return handler_.TakesInPlace(*this, header);
  }
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel&, const FrameHeader&) override {}
  void OnClosed(Channel& channel, const absl::Status& why) override;

 private:
  void Connect();
  void ReconnectAfter(const absl::Status& why);
  void OnConnected(absl::StatusOr<std::unique_ptr<Channel>> channel);

  Transport& transport_;
  Executor& executor_;
  const LaneLinkTarget target_;
  LaneLinkHandler& handler_;
  RetryPace pace_;
  Executor::TimerId retry_ = 0;
  std::unique_ptr<Channel> channel_;
  std::shared_ptr<LaneLink*> self_;  // a Connect in progress holds it weakly: gone with the link
};

}  // namespace pushpull
