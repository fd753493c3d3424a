// SPDX-License-Identifier: Apache-2.0
//
// The member's end of a session, over gRPC. No gRPC type is seen here.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/membership/session.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Each session has a connection of its own, so that ten members of one process do not share one.
// Thread-compatible; sessions may outlive it.
class GrpcSessionConnector final : public SessionConnector {
 public:
  // `address` is host:port. Each session uses the certificates that `tls`, which outlives the
  // connector, has when it begins; null: no TLS. A coordinator that has not answered after
  // `connect_timeout` counts as not reachable.
  explicit GrpcSessionConnector(std::string address,
                                const TlsFolder* tls = nullptr,
                                Duration connect_timeout = std::chrono::seconds(5));

  // OnClosed then has one of:
  //   kUnavailable       nobody answers at the address, the certificates of the two ends do not
  //                      fit, the connection broke, or the coordinator ended the session in order;
  //                      connect anew where that makes sense.
  //   kInvalidArgument   one side sent what the other cannot read: different versions, or a bug.
  //   kResourceExhausted too many sessions, or a peer that has stopped reading.
  //
  // Destroying the session sends what is still queued first; it blocks for 1 s at most, where the
  // coordinator does not take it.
  std::unique_ptr<Session> Connect(Executor& executor, SessionHandler& handler) override;

 private:
  const std::string address_;
  const TlsFolder* const tls_;
  const Duration connect_timeout_;
};

}  // namespace pushpull
