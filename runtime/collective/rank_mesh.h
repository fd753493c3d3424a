// SPDX-License-Identifier: Apache-2.0
//
// Connects every rank of a communicator with every other.
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
#include "runtime/transport/shm/shared_memory.h"

namespace pushpull {

// The most ranks in one communicator: each has a connection to every other one and, over shm, also
// a ring of half a megabyte.
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
  // Of all ranks, by rank: this tells how many there are, and where this one reaches them. Hosts
  // are numeric. All ranks listen before any connects.
  std::vector<HostPort> addresses;
  GroupToken group{};
  LinkChannel channel = LinkChannel::kTcp;  // the same for all ranks
  // Over kShm: memory of this rank. The other ranks read arrays in it where they are, instead of
  // copies in a ring. Null: arrays are private.
  std::shared_ptr<const SharedMemory> arrays = nullptr;
  // Ends every wait if set; may be null.
  const Interrupt* interrupt = nullptr;
  // Above 0: a rank that cannot be reached yet, or still awaits another group, is tried again after
  // this time, until the deadline.
  Duration retry_pause{0};
  // Over kTcp: the certificate that this rank presents, and a check that a peer's belongs to the
  // rank that it claims to be. Null: plain text.
  std::shared_ptr<const TlsIdentity> tls = nullptr;
  std::function<absl::Status(uint32_t rank, const PeerIdentity& peer)> check_peer = nullptr;
};

// Blocks until this rank is connected to all others. Peers that are not ranks of the group are
// refused and dropped, without effect on others. Without `tls`, in plain text, for one host or a
// trusted network. Errors name both ranks:
//
//   kInvalidArgument   not a rank among 1 to kRanksMax; a rank refuses this one, see CheckLinkHello
//   kDeadlineExceeded  the text names the missing ranks, and the last refusal
//   kUnavailable       a rank has disappeared again
//   kCancelled         the interrupt is set
//   kPermissionDenied  a rank awaits another group
//   kUnauthenticated   a rank's certificate is not accepted
absl::StatusOr<LinkSet> ConnectRanks(const RankListener& listener,
                                     const MeshOptions& options,
                                     Deadline deadline);

}  // namespace pushpull
