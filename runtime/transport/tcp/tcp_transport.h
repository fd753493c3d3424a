// SPDX-License-Identifier: Apache-2.0
//
// The tcp channel: our own frames over sockets, one loop per lane
// (docs/decisions/0002-frame-layout.md and 0003-lanes.md).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/transport/stream/stream_transport.h"

namespace pushpull {

// Thread-safe. Has one thread of its own, "pp-resolver", from the first Connect to a host name on,
// because name lookups block.
class TcpTransport final : public StreamTransport {
 public:
  // Lane i runs on loops[i]; the loops outlive the transport.
  TcpTransport(std::vector<EventLoop*> loops, const TransportOptions& options)
      : StreamTransport(std::move(loops), options) {}
  // Waits for a lookup in progress, at most as long as the system's resolver is configured to take.
  // A Connect in progress continues; one without an address yet ends at its deadline.
  ~TcpTransport() override { is_ending_ = true; }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

 private:
  absl::StatusOr<std::shared_ptr<StreamAcceptor>> MakeAcceptor(
      std::shared_ptr<AcceptContext> context, FileDescriptor socket) override;
  void Dial(const HostPort& address,
            EventLoop& loop,
            const TransportOptions& options,
            ConnectRequest request,
            ConnectDone done) override;
  EventLoop& resolver() ABSL_LOCKS_EXCLUDED(mu_);

  std::atomic<bool> is_ending_ = false;
  Mutex mu_;
  std::unique_ptr<EventLoop> resolver_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
