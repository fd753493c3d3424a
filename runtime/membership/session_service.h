// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's end of all sessions, and its answers to commands, over gRPC. No gRPC type is
// visible here.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/executor.h"
#include "runtime/membership/session.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Thread-safe, except that Serve, Shutdown and the destructor are called from one thread outside
// the executor.
class CoordinatorService : public SessionSink {
 public:
  // Binds the port; members that connect wait for Serve. `listen` is host:port, port 0: a free one.
  // `executor` and `tls` outlive the service; `tls` null: no TLS. Destroying the service shuts it
  // down within 2 s if Shutdown was not called. Errors name the address:
  //
  //   kInvalidArgument  not host:port
  //   kAlreadyExists    the port is in use
  //   kUnavailable      the host is not an address of this machine
  static absl::StatusOr<std::unique_ptr<CoordinatorService>> Listen(const std::string& listen,
                                                                    Executor& executor,
                                                                    const TlsFolder* tls = nullptr);

  // Starts to deliver events. Called once. `events` is used on the executor until Shutdown returns.
  virtual void Serve(SessionEvents& events) = 0;

  // Closes all sessions after sending what is queued, and cancels those that take longer than
  // `deadline`. Blocks until no call is left. No event is delivered afterwards; OnClosed is not
  // called for the sessions it closes. Safe to call twice.
  virtual void Shutdown(Deadline deadline) = 0;

  // host:port with the real port.
  virtual const std::string& address() const = 0;

  // A session with 1,024 messages queued is closed with kResourceExhausted.
  void Send(SessionId session, ToMember message) override = 0;
  // A member that does not read what is queued within 2 s is cancelled.
  void Close(SessionId session) override = 0;
};

}  // namespace pushpull
