// SPDX-License-Identifier: Apache-2.0
//
// Connects the ranks of a communicator, each with each other one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/collective/interrupt.h"
#include "runtime/collective/link_hello.h"
#include "runtime/collective/peer_link.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull {

// Ranks of one communicator at most: each has a connection to every other one, over shm also a ring
// of half a megabyte.
constexpr size_t kRanksMax = 64;

enum class LinkChannel : uint8_t { kTcp, kShm };

// Where a rank awaits the others.
class RankListener {
 public:
  // kAlreadyExists: the port is in use. Port 0 takes a free one.
  static absl::StatusOr<RankListener> Listen(const HostPort& address);

  uint16_t port() const { return port_; }
  const FileDescriptor& socket() const { return socket_; }

 private:
  RankListener(FileDescriptor socket, uint16_t port) : socket_(std::move(socket)), port_(port) {}

  FileDescriptor socket_;
  uint16_t port_;
};

struct MeshOptions {
  uint32_t rank = 0;
  // Of all ranks, by rank: how many there are, and where this one reaches them. Numeric hosts. All
  // ranks listen before any connects.
  std::vector<HostPort> addresses;
  GroupToken group{};
  LinkChannel channel = LinkChannel::kTcp;  // of all ranks
  // Ends every wait; null: nothing does.
  const Interrupt* interrupt = nullptr;
  // Above 0: a rank that cannot be reached yet, or awaits those of another group still, is tried
  // again after this time, until the deadline.
  Duration retry_pause{0};
  // Over kTcp: the certificate that this rank shows, and whether a peer's is that of the rank that
  // it says it is. Null: plain text.
  std::shared_ptr<const TlsIdentity> tls = nullptr;
  std::function<absl::Status(uint32_t rank, const PeerIdentity& peer)> check_peer = nullptr;
};

// Blocks until this rank is connected to all others. Whatever connects and is no rank of the group
// is told so and dropped; it disturbs nobody. Without `tls` in plain text, for one host or a
// network that is trusted. Errors name both ranks:
//
//   kInvalidArgument   no rank of 1 to kRanksMax; a rank refuses this one, as CheckLinkHello says
//   kDeadlineExceeded  names the ranks that are missing, and who was refused last
//   kUnavailable       a rank has gone again
//   kCancelled         the interrupt is set
//   kPermissionDenied  a rank awaits those of another group
//   kUnauthenticated   a rank's certificate is not accepted
absl::StatusOr<LinkSet> ConnectRanks(const RankListener& listener,
                                     const MeshOptions& options,
                                     Deadline deadline);

}  // namespace pushpull
