// SPDX-License-Identifier: Apache-2.0
//
// The member's end of a session, over gRPC. No gRPC type is visible here.
#pragma once

#include <memory>
#include <string>

#include "pushpull/deadline.h"

#include "runtime/membership/session.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Each session has its own connection, even among members of one process.
// Thread-compatible; sessions may outlive it.
class GrpcSessionConnector final : public SessionConnector {
 public:
  // `address` is host:port. Each session uses the certificates that `tls`, which outlives the
  // connector, has when the session starts; null: no TLS. A coordinator that has not answered after
  // `connect_timeout` counts as unreachable.
  explicit GrpcSessionConnector(std::string address,
                                const TlsFolder* tls = nullptr,
                                Duration connect_timeout = std::chrono::seconds(5));

  // Destroying the session first sends what is queued; if the coordinator does not read that, it
  // blocks for at most 1 s. OnClosed gets one of:
  //
  //   kUnavailable        nothing answers at the address, the certificates do not match, the
  //                       connection broke, or the coordinator closed the session: reconnect.
  //   kInvalidArgument    one side sent what the other cannot read: different versions, or a bug.
  //   kResourceExhausted  too many sessions, or a peer that has stopped reading.
  std::unique_ptr<Session> Connect(Executor& executor, SessionHandler& handler) override;

 private:
  const std::string address_;
  const TlsFolder* const tls_;
  const Duration connect_timeout_;
};

}  // namespace pushpull
