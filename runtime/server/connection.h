// SPDX-License-Identifier: Apache-2.0
//
// A worker's connection to one lane: its channel and the frame being received on it. It routes
// frames to the parts of the lane (lane.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"

namespace pushpull {

class Chunk;
class Lane;

// Where the payload of the frame being received goes. Empty between frames.
struct Reception {
  enum class Place {
    kNowhere,      // read and dropped
    kAccumulator,  // directly into the chunk's sum
    kBuffer,       // into `buffer`: a later contribution, or an initial value
    kInPlace,      // nowhere: it is added from the worker's memory
  };
  Place place = Place::kNowhere;
  Chunk* chunk = nullptr;  // the receiver, whose shape the header fits; null if there is none
  HostBuffer buffer;
  std::span<const float> in_place;
};

// Thread-confined to the lane, which owns it.
class Connection final : public FrameHandler {
 public:
  // `lane` outlives the connection. `number` rises with every connection of the lane.
  Connection(Lane& lane, uint64_t number, Hello hello, std::unique_ptr<Channel> channel)
      : lane_(lane), number_(number), hello_(std::move(hello)), channel_(std::move(channel)) {}

  std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) override;
  bool TakesInPlace(Channel& channel, const FrameHeader& header) override;
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel& channel, const FrameHeader& header) override;
  void OnClosed(Channel& channel, const absl::Status& why) override;

  uint64_t number() const { return number_; }
  const Hello& hello() const { return hello_; }
  Channel& channel() const { return *channel_; }
  Reception& reception() { return reception_; }
  // How many of the lane's shared pages the worker has been offered.
  size_t& num_pages_shared() { return num_pages_shared_; }

 private:
  Chunk* FindReceiver(const FrameHeader& header);
  void OnCopy(const FrameHeader& header);
  void Violate(const std::string& what);

  Lane& lane_;
  const uint64_t number_;
  const Hello hello_;
  Reception reception_;
  size_t num_pages_shared_ = 0;
  std::unique_ptr<Channel> channel_;  // last: it may still call while it is destroyed
};

}  // namespace pushpull
