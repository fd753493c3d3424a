// SPDX-License-Identifier: Apache-2.0
//
// Where a worker accepts connections from the other workers of its group
// (docs/decisions/0084-joint-pushes.md).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/transport/channel.h"

namespace pushpull {

// Takes over the connections of a GroupPort.
class GroupPortUser {
 public:
  virtual ~GroupPortUser() = default;
  // The user calls Start.
  virtual void OnPeer(const Hello& hello, std::unique_ptr<Channel> channel) = 0;
};

// Thread-confined to the executor of the transport's only lane, apart from Listen, the destructor
// while there is no user, and the transport's calls.
class GroupPort final : private ChannelAcceptor {
 public:
  // Accepts workers of `job` at host:port. `transport` outlives the port. Errors are those of
  // Transport::Listen.
  static absl::StatusOr<std::unique_ptr<GroupPort>> Listen(Transport& transport,
                                                           const std::string& job,
                                                           const std::string& address);

  // [grpc://]host:port, with the actual port.
  const std::string& address() const { return address_; }
  // Connections are closed while there is no user, who outlives the port or is set to null.
  void SetUser(GroupPortUser* user) { user_ = user; }

 private:
  explicit GroupPort(std::string job) : job_(std::move(job)) {}

  absl::Status Admit(const Hello& hello) override;
  void OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) override;
  void OnRejected(const absl::Status& /*why*/) override {}

  const std::string job_;
  std::string address_;
  GroupPortUser* user_ = nullptr;
  std::unique_ptr<Listener> listener_;
};

}  // namespace pushpull
