// SPDX-License-Identifier: Apache-2.0
//
// The part of a wire that is the same on both sides: one read, one write, and who is notified.
#pragma once

#include <memory>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/transport/grpc/byte_buffer.h"
#include "runtime/transport/grpc/wire.h"

namespace pushpull {

// `Reactor`: gRPC's base class for a bidirectional stream of ByteBuffers. Thread-safe.
template <typename Reactor>
class ReactorWire : public Wire, public Reactor {
 public:
  void Read() override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!is_ending_) this->StartRead(&incoming_);
  }

  void Write(OutgoingMessage message) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (is_ending_) return;
    outgoing_ = ToByteBuffer(std::move(message));
    this->StartWrite(&outgoing_);
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      outgoing_.Clear();
    }
    if (!ok) return;  // the end follows
    if (const auto events = Events()) events->OnWritten();
  }

 protected:
  // The outstanding read is complete.
  void TakeRead() ABSL_LOCKS_EXCLUDED(mu_) {
    IncomingMessage message;
    {
      MutexLock lock(mu_);
      message = FromByteBuffer(incoming_);
      incoming_.Clear();
    }
    if (const auto events = Events()) events->OnRead(std::move(message));
  }

  // Null before Start and after the end. Called without the lock, because they lock a stream.
  std::shared_ptr<WireEvents> Events() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return events_;
  }

  Mutex mu_;
  grpc::ByteBuffer incoming_ ABSL_GUARDED_BY(mu_);  // the outstanding read's
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);  // the outstanding write's
  std::shared_ptr<WireEvents> events_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;  // neither read nor write starts any more
};

}  // namespace pushpull
