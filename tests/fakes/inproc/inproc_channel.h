// SPDX-License-Identifier: Apache-2.0
//
// A Channel over one end of an in-process connection.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/transport/channel.h"
#include "tests/fakes/inproc/inproc_end.h"

namespace pushpull {

// Thread-confined to the end's executor.
class InprocChannel final : public Channel {
 public:
  explicit InprocChannel(std::shared_ptr<InprocEnd> end) : end_(std::move(end)) {}
  ~InprocChannel() override { end_->Close(); }
  InprocChannel(const InprocChannel&) = delete;
  InprocChannel& operator=(const InprocChannel&) = delete;

  void Start(FrameHandler& handler) override { end_->Start(*this, handler); }
  void Send(OutgoingFrame frame) override { end_->Send(std::move(frame)); }
  void Close() override { end_->Close(); }
  size_t queued_bytes() const override { return end_->queued_bytes(); }
  bool is_reliable() const override { return end_->is_reliable(); }
  Duration clock_offset() const override { return Duration::zero(); }
  void Share(std::shared_ptr<const SharedMemory>, ShareRefused) override {}
  absl::string_view kind() const override { return "inproc"; }
  const std::string& peer() const override { return end_->peer(); }

 private:
  const std::shared_ptr<InprocEnd> end_;
};

}  // namespace pushpull
