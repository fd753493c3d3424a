// SPDX-License-Identifier: Apache-2.0
//
// A stream of frames over one gRPC stream.
//
//   gRPC's threads: receive, send --> inbox --> the loop: copies payloads to their place, frames
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/mutex.h"
#include "runtime/transport/frame_queue.h"
#include "runtime/transport/grpc/payload_loans.h"
#include "runtime/transport/grpc/wire.h"
#include "runtime/transport/stream/frame_stream.h"

namespace pushpull {

enum class StreamSide { kConnecting, kAccepting };

struct StreamSettings {
  StreamSide side = StreamSide::kConnecting;
  std::string peer;  // begins every error text
  size_t frames_max = 0;
};

// Thread-confined to the loop, except for the functions that the wire calls.
class GrpcStream final : public FrameStream {
 public:
  // Starts the wire, which delivers its events to the result. `loop` and `in_flight` outlive the
  // stream.
  static std::shared_ptr<GrpcStream> Open(EventLoop& loop,
                                          std::shared_ptr<Wire> wire,
                                          StreamSettings settings,
                                          InFlight& in_flight);
  GrpcStream(EventLoop& loop,
             std::shared_ptr<Wire> wire,
             StreamSettings settings,
             InFlight& in_flight);

  void CloseAfter(OutgoingFrame frame) override;
  void SetPayloadChecksums(bool has_checksums) override { has_checksums_ = has_checksums; }
  size_t queued_bytes() const override { return waiting_.num_bytes() + num_writing_bytes_; }
  absl::string_view kind() const override { return "grpc"; }
  absl::StatusOr<PeerIdentity> identity() const override { return wire_->identity(); }

  // Called by the wire, on gRPC's threads.
  //
  // The result of a Read.
  void OnRead(IncomingMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  // gRPC has taken the message of the last Write, as far as the peer's window allows; the next
  // Write may follow.
  void OnWritten() ABSL_LOCKS_EXCLUDED(mu_);
  // kUnavailable: the connection or the peer's end is closed. Other codes: this peer does not speak
  // the protocol. May be called more than once; an OnRead of earlier bytes may follow.
  void OnEnded(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool is_connected() const override { return wire_ != nullptr; }
  bool has_unread() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Enqueue(OutgoingFrame frame) override;
  void Flush() override;
  void Resume() override ABSL_LOCKS_EXCLUDED(mu_);
  void Suspend() override {}
  void Disconnect() override;
  std::shared_ptr<FrameStream> Rehome(EventLoop& loop, std::string peer) override;

  OutgoingMessage NextMessage();
  // Posts a turn, unless one is already posted.
  void ScheduleTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeTurn() ABSL_LOCKS_EXCLUDED(mu_);
  void TakeInbox() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReadCurrent();
  void ReadOnOrEnd() ABSL_LOCKS_EXCLUDED(mu_);

  std::shared_ptr<Wire> wire_;  // null: closed
  const StreamSide side_;
  InFlight& in_flight_;

  std::optional<IncomingMessage> current_;  // read up to next_slice_
  size_t next_slice_ = 0;

  FrameQueue waiting_;
  PayloadLoans loans_;
  bool has_checksums_ = false;
  bool is_writing_ = false;
  size_t num_writing_bytes_ = 0;

  // Between gRPC's threads and the loop.
  mutable Mutex mu_;
  std::optional<IncomingMessage> inbox_ ABSL_GUARDED_BY(mu_);
  bool is_reading_ ABSL_GUARDED_BY(mu_) = false;
  bool is_written_ ABSL_GUARDED_BY(mu_) = false;
  bool is_turn_posted_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
