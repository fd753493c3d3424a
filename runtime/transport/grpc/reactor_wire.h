// SPDX-License-Identifier: Apache-2.0
//
// The part of a wire that both sides share: gRPC's settings, one read, one write, and the receiver
// of events.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/support/byte_buffer.h>

#include "runtime/base/mutex.h"
#include "runtime/transport/grpc/grpc_stream.h"
#include "runtime/transport/grpc/wire.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Calls `set` with the name and value of each of gRPC's channel arguments for chunks.
void SetStreamArguments(const TransportOptions& options,
                        const std::function<void(const char* name, int value)>& set);

// Converts to and from gRPC's type without copying.
grpc::ByteBuffer ToByteBuffer(OutgoingMessage message);
IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer);

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
    if (const auto receiver = Receiver()) receiver->OnWritten();
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
    if (const auto receiver = Receiver()) receiver->OnRead(std::move(message));
  }

  // Null before Start and after the end. Its functions are called without mu_, because they lock
  // the stream.
  std::shared_ptr<GrpcStream> Receiver() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return receiver_;
  }

  Mutex mu_;
  grpc::ByteBuffer incoming_ ABSL_GUARDED_BY(mu_);  // the outstanding read's
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);  // the outstanding write's
  std::shared_ptr<GrpcStream> receiver_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;  // no read or write starts any more
};

}  // namespace pushpull
