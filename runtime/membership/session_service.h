// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's end of all sessions, and the answer to GetStatus, over gRPC. No gRPC type is
// seen here.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/deadline.h"
#include "runtime/base/executor.h"
#include "runtime/membership/session.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Thread-safe, except that Serve, Shutdown and the destructor are called by one thread outside of
// the executor.
class CoordinatorService final : public SessionSink {
 public:
  // Takes the port, so that address() is known and the port cannot be lost; members that connect
  // wait for Serve. `listen` is host:port, port 0 takes a free one. `executor` and `tls` outlive
  // the service; null: no TLS.
  //
  // kInvalidArgument: no host:port. kAlreadyExists: the port is in use. kUnavailable: the host is
  // not an address of this machine. Each names the address.
  static absl::StatusOr<std::unique_ptr<CoordinatorService>> Listen(const std::string& listen,
                                                                    Executor& executor,
                                                                    const TlsFolder* tls = nullptr);
  // Shuts down within 2 s, where Shutdown was not called.
  ~CoordinatorService() override;
  CoordinatorService(const CoordinatorService&) = delete;
  CoordinatorService& operator=(const CoordinatorService&) = delete;

  // Starts to hand on what members say. Called once. `events` is used on the executor until
  // Shutdown returns.
  void Serve(SessionEvents& events);

  // Ends all sessions after what was sent on them, those that take longer than `deadline` without.
  // Blocks until no call is left. No event is delivered after it; OnClosed is not called for the
  // sessions it ends. Safe to call twice.
  void Shutdown(Deadline deadline);

  // host:port with the real port.
  const std::string& address() const { return address_; }

  // A member that does not take its messages is closed with kResourceExhausted when 1,024 wait.
  void Send(SessionId session, ToMember message) override;
  // A member that does not take what was sent before within 2 s is cut off.
  void Close(SessionId session) override;

 private:
  class Impl;
  CoordinatorService(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

}  // namespace pushpull
