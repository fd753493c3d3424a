// SPDX-License-Identifier: Apache-2.0
//
// What the two ends of an in-process connection share, and how one reaches the other's thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/acceptor_gate.h"
#include "runtime/transport/channel.h"

namespace pushpull {

class InprocEnd;

// A transport as others see it: its lanes while it exists. Thread-safe.
class InprocNode {
 public:
  InprocNode(std::string name, std::vector<Executor*> lanes)
      : name_(std::move(name)), lanes_(std::move(lanes)) {}

  const std::string& name() const { return name_; }
  // Drops the task when the transport has been destroyed.
  void Post(size_t lane, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // The lanes are not used any more once this has returned.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string name_;
  Mutex mu_;
  std::vector<Executor*> lanes_ ABSL_GUARDED_BY(mu_);
};

// An address somebody listens on.
struct InprocPort {
  InprocPort(std::shared_ptr<InprocNode> listening,
             std::vector<Executor*> executors,
             ChannelAcceptor& acceptor)
      : node(std::move(listening)), lanes(std::move(executors)), gate(acceptor) {}
  const std::shared_ptr<InprocNode> node;
  const std::vector<Executor*> lanes;  // used on themselves only
  AcceptorGate gate;
};

// A frame in flight. Belongs to its sender, which drops the payload when the frame has arrived or
// the link has ended; until then the receiver may read it through InprocLink::CopyPayload.
struct Flight {
  uint64_t id = 0;
  FrameHeader header;
  std::vector<std::byte> meta;
  Payload payload;
};

// Thread-safe.
class InprocLink {
 public:
  struct Side {
    std::shared_ptr<InprocNode> node;
    size_t lane = 0;
    std::string peer;  // what this side calls the other
  };

  // Side 0 has connected, side 1 has accepted.
  InprocLink(Side connecting, Side accepting)
      : sides_{std::move(connecting), std::move(accepting)} {}

  const Side& side(size_t index) const { return sides_.at(index); }
  // Both ends are known before anything is posted to them.
  void SetEnds(const std::shared_ptr<InprocEnd>& connecting,
               const std::shared_ptr<InprocEnd>& accepting);

  // Runs `task` with the end of that side on its executor, if it still exists.
  void Post(size_t side, std::function<void(InprocEnd&)> task);

  // One side has closed the connection; the other is notified.
  void CloseFrom(size_t side) ABSL_LOCKS_EXCLUDED(mu_);
  // Breaks the connection; both ends are notified at once, or after `timeout`.
  void Break() ABSL_LOCKS_EXCLUDED(mu_);
  void Cut(Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  bool is_open() const ABSL_LOCKS_EXCLUDED(mu_);

  // Copies the payload of a frame in flight. False: the link has ended.
  bool CopyPayload(const Flight& flight, std::span<std::byte> place) const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the payload from the flight; waits for a copy in progress, none begins afterwards.
  Payload TakePayload(Flight& flight) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class State { kOpen, kEnded, kCut };

  const std::array<Side, 2> sides_;
  std::array<std::weak_ptr<InprocEnd>, 2> ends_;
  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpen;
};

}  // namespace pushpull
