// SPDX-License-Identifier: Apache-2.0
//
// One end of an in-process connection: the implementation of an InprocChannel.
//
//   Send -> queue -> [window] -> Launch: faults drawn -> (delay) -> peer's inbox, in order of
//   arrival
//        -> PayloadBuffer -> one turn of the executor -> payload copied, OnFrame -> window moves on
//
// Header and payload are handled in two turns, so that everything that can happen between them with
// a real channel can happen here too.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/frame_queue.h"
#include "tests/fakes/inproc/fault_stream.h"
#include "tests/fakes/inproc/inproc_link.h"
#include "tests/fakes/inproc/inproc_network.h"

namespace pushpull {

// Thread-confined to its executor, but for the constructor. Held by shared_ptr because callbacks
// may destroy the channel.
class InprocEnd final : public std::enable_shared_from_this<InprocEnd> {
 public:
  // `network` and `executor` outlive the end.
  InprocEnd(InprocNetwork& network,
            std::shared_ptr<InprocLink> link,
            size_t side,
            Executor& executor,
            uint64_t seed);

  // Called by the channel.
  void Start(Channel& channel, FrameHandler& handler);
  void Send(OutgoingFrame frame);
  void Close();
  size_t queued_bytes() const { return queue_.num_bytes(); }
  bool is_reliable() const { return network_.options().faults.is_reliable(); }
  const std::string& peer() const { return link_->side(side_).peer; }

  // Called by the other end.
  void Accept(SteadyTime arrives_at, std::shared_ptr<const Flight> flight);
  void OnDelivered(uint64_t flight);
  // The connection is broken; `why` does not name the peer yet.
  void Fail(const absl::Status& why);
  void FailAfter(Duration timeout);

 private:
  struct Reception {
    std::shared_ptr<const Flight> flight;
    std::span<std::byte> place;
  };

  void ScheduleFlush();
  void Flush();
  void Launch(OutgoingFrame frame);
  void Pump();
  void WakeAt(SteadyTime when);
  void BeginPayload(std::shared_ptr<const Flight> flight);
  void FinishPayload();
  void Deliver(const Flight& flight, std::span<std::byte> payload);
  // Notifies the handler, once.
  void Report();
  void Release();
  // Runs `method` in a later turn, if this end still exists.
  void PostSelf(void (InprocEnd::*method)());

  InprocNetwork& network_;
  const std::shared_ptr<InprocLink> link_;
  const size_t side_;
  Executor& executor_;
  Channel* channel_ = nullptr;
  FrameHandler* handler_ = nullptr;
  bool is_closed_ = false;
  absl::Status failure_;  // why, where it was not our own Close

  FrameQueue queue_;
  FaultStream faults_;
  bool is_flush_scheduled_ = false;
  uint64_t next_flight_ = 1;
  std::map<uint64_t, std::shared_ptr<Flight>> outstanding_;
  size_t bytes_outstanding_ = 0;
  SteadyTime last_arrival_;  // of the frames sent in order

  std::map<std::pair<SteadyTime, uint64_t>, std::shared_ptr<const Flight>> inbox_;
  uint64_t num_accepted_ = 0;
  std::optional<Reception> reception_;
  Executor::TimerId wake_timer_ = 0;
  Executor::TimerId fail_timer_ = 0;
};

}  // namespace pushpull
