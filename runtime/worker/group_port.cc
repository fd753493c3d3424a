// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/group_port.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<GroupPort>> GroupPort::Listen(Transport& transport,
                                                             const std::string& job,
                                                             const std::string& address) {
  std::unique_ptr<GroupPort> port(new GroupPort(job));
  PUSHPULL_ASSIGN_OR_RETURN(port->listener_, transport.Listen(address, *port));
  port->address_ = absl::StrCat(transport.scheme(), port->listener_->address());
  return port;
}

absl::Status GroupPort::Admit(const Hello& hello) {
  if (hello.job == job_ && !hello.server && hello.lane == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("this is a worker of job ",
                                                 job_,
                                                 ", for the workers of its group; ",
                                                 PeerName(hello),
                                                 " of job ",
                                                 hello.job,
                                                 " asks for lane ",
                                                 hello.lane));
}

void GroupPort::OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) {
  if (user_ != nullptr) user_->OnPeer(hello, std::move(channel));
}

}  // namespace pushpull
