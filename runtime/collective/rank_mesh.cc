// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/rank_mesh.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status_macros.h"
#include "runtime/collective/link_socket.h"
#include "runtime/collective/shm/rank_memory.h"
#include "runtime/collective/shm/shm_link.h"
#include "runtime/collective/tcp/tcp_link.h"
#include "runtime/transport/shm/descriptor_inbox.h"
#include "runtime/transport/tcp/tcp_stream.h"

namespace pushpull {
namespace {

// How long to wait for a silent peer that has connected: others are waiting.
constexpr Duration kHelloTimeout = std::chrono::seconds(5);

absl::Status About(absl::string_view what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

// Connects one rank to those below it, then awaits those above it.
class MeshBuilder {
 public:
  MeshBuilder(const RankListener& listener, const MeshOptions& options, Deadline deadline)
      : listener_(listener),
        options_(options),
        ranks_(options.addresses.size()),
        wait_{deadline, options.interrupt},
        host_(HostIdentity()) {}

  absl::StatusOr<LinkSet> Build() {
    PUSHPULL_RETURN_IF_ERROR(CheckOptions());
    set_.links.resize(ranks_);
    PUSHPULL_RETURN_IF_ERROR(MakeOwnMemory());
    for (uint32_t rank = 0; rank < options_.rank; ++rank) {
      const absl::Status connected = ConnectPatiently(rank);
      if (!connected.ok()) return About(Pair(rank), connected);
    }
    while (!Missing().empty()) PUSHPULL_RETURN_IF_ERROR(AcceptOne());
    return std::move(set_);
  }

 private:
  bool is_shm() const { return options_.channel == LinkChannel::kShm; }

  absl::Status CheckOptions() const {
    if (is_shm() && options_.tls != nullptr)
      return absl::InvalidArgumentError("ranks over shared memory have no TLS");
    if (ranks_ >= 1 && ranks_ <= kRanksMax && options_.rank < ranks_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rank ",
                                                   options_.rank,
                                                   " of ",
                                                   ranks_,
                                                   ": there are 1 to ",
                                                   kRanksMax,
                                                   " ranks, numbered from 0"));
  }

  // "rank 2 to rank 0 at 127.0.0.1:7000".
  std::string Pair(uint32_t peer) const {
    return absl::StrCat(
        "rank ", options_.rank, " to rank ", peer, " at ", ToString(options_.addresses[peer]));
  }

  std::vector<uint32_t> Missing() const {
    std::vector<uint32_t> missing;
    for (uint32_t rank = options_.rank + 1; rank < ranks_; ++rank) {
      if (set_.links[rank] == nullptr) missing.push_back(rank);
    }
    return missing;
  }

  absl::Status MakeOwnMemory() {
    if (!is_shm() || ranks_ == 1) return absl::OkStatus();
    PUSHPULL_ASSIGN_OR_RETURN(memory_, OwnRankMemory::Create(ranks_, options_.arrays));
    set_.doorbell = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!set_.doorbell.is_open()) return StatusFromErrno(errno, "make an eventfd");
    return absl::OkStatus();
  }

  // Sends the other end's inbox what it needs from this one.
  absl::Status SendOwn(const ShmOffer& inbox) const {
    PUSHPULL_RETURN_IF_ERROR(SendDescriptor(inbox, memory_->descriptor()));
    PUSHPULL_RETURN_IF_ERROR(SendDescriptor(inbox, set_.doorbell.get()));
    if (options_.arrays == nullptr) return absl::OkStatus();
    return SendDescriptor(inbox, options_.arrays->descriptor());
  }

  absl::Status AddTcpLink(uint32_t peer, TcpStream stream) {
    PUSHPULL_ASSIGN_OR_RETURN(set_.links[peer], TcpLink::Make(std::move(stream)));
    return absl::OkStatus();
  }

  // Over TLS; call after a message from the peer.
  absl::Status CheckPeer(uint32_t peer, const TcpStream& stream) const {
    if (options_.tls == nullptr || options_.check_peer == nullptr) return absl::OkStatus();
    const absl::Status checked = options_.check_peer(peer, stream.peer());
    return checked.ok() ? checked : absl::UnauthenticatedError(checked.message());
  }

  absl::Status AddShmLink(uint32_t peer, FileDescriptor socket, const DescriptorInbox& inbox) {
    PUSHPULL_ASSIGN_OR_RETURN(const FileDescriptor memory, inbox.Take());
    PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor doorbell, inbox.Take());
    PUSHPULL_ASSIGN_OR_RETURN(NeighbourMemory neighbour,
                              NeighbourMemory::Attach(memory, ranks_, options_.rank));
    if (neighbour.ArrayBytes() > 0) {
      PUSHPULL_ASSIGN_OR_RETURN(const FileDescriptor arrays, inbox.Take());
      PUSHPULL_RETURN_IF_ERROR(neighbour.AttachArrays(arrays));
    }
    set_.links[peer] = std::make_unique<ShmLink>(ShmLink::Parts{.own = memory_,
                                                                .peer = peer,
                                                                .neighbour = std::move(neighbour),
                                                                .doorbell = std::move(doorbell),
                                                                .socket = std::move(socket)});
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<DescriptorInbox>> OpenInbox() const {
    if (!is_shm()) return std::optional<DescriptorInbox>();
    PUSHPULL_ASSIGN_OR_RETURN(DescriptorInbox inbox, DescriptorInbox::Open("pushpull-rank-"));
    return std::optional<DescriptorInbox>(std::move(inbox));
  }

  absl::Status ConnectPatiently(uint32_t peer) {
    while (true) {
      absl::Status connected = Connect(peer);
      const bool may_pass = options_.retry_pause > Duration::zero() &&
                            (absl::IsUnavailable(connected) || absl::IsPermissionDenied(connected));
      if (!may_pass || wait_.deadline.has_passed()) return connected;
      PUSHPULL_RETURN_IF_ERROR(Pause());
    }
  }

  // kCancelled: interrupted.
  absl::Status Pause() const {
    const LinkWait pause = {.deadline = Deadline::After(options_.retry_pause),
                            .interrupt = wait_.interrupt};
    // poll ignores a negative descriptor.
    const absl::Status over = AwaitSocket(-1, 0, pause);
    return absl::IsDeadlineExceeded(over) ? absl::OkStatus() : over;
  }

  absl::Status Connect(uint32_t peer) {
    PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket,
                              ConnectToRank(options_.addresses[peer], wait_));
    PUSHPULL_ASSIGN_OR_RETURN(const std::optional<DescriptorInbox> inbox, OpenInbox());
    TcpStream stream(std::move(socket), options_.tls, TlsSide::kConnecting);
    LinkHello hello = {.group = options_.group,
                       .from = options_.rank,
                       .to = peer,
                       .ranks = static_cast<uint32_t>(ranks_),
                       .host = host_};
    if (inbox) hello.shm = inbox->address();
    PUSHPULL_RETURN_IF_ERROR(SendLinkMessage(stream, EncodeLinkHello(hello), wait_));
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> body, ReceiveLinkMessage(stream, wait_));
    PUSHPULL_ASSIGN_OR_RETURN(const LinkWelcome welcome, DecodeLinkWelcome(body));
    if (!welcome.admitted.ok()) return About("it refuses this rank", welcome.admitted);
    PUSHPULL_RETURN_IF_ERROR(CheckPeer(peer, stream));
    if (!is_shm()) return AddTcpLink(peer, std::move(stream));
    if (!welcome.shm) return absl::DataLossError("it has no shared memory");
    const LinkReady ready = {.done = SendOwn(*welcome.shm)};
    PUSHPULL_RETURN_IF_ERROR(SendLinkMessage(stream, EncodeLinkReady(ready), wait_));
    PUSHPULL_RETURN_IF_ERROR(ready.done);
    PUSHPULL_RETURN_IF_ERROR(AwaitReady(stream));
    return AddShmLink(peer, stream.Release(), *inbox);
  }

  absl::Status AwaitReady(TcpStream& stream) const {
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> body, ReceiveLinkMessage(stream, wait_));
    PUSHPULL_ASSIGN_OR_RETURN(const LinkReady ready, DecodeLinkReady(body));
    return ready.done;
  }

  // Errors come only from waiting; refused peers have been notified.
  absl::Status AcceptOne() {
    absl::StatusOr<FileDescriptor> socket = AcceptRank(listener_.socket().get(), wait_);
    if (!socket.ok()) {
      return absl::Status(socket.status().code(),
                          absl::StrCat("rank ",
                                       options_.rank,
                                       ": has waited for rank ",
                                       absl::StrJoin(Missing(), ", "),
                                       " of ",
                                       ranks_,
                                       last_refusal_.empty() ? "" : "; refused: ",
                                       last_refusal_,
                                       ": ",
                                       socket.status().message()));
    }
    const absl::Status admitted = Admit(*std::move(socket));
    if (!admitted.ok()) last_refusal_ = std::string(admitted.message());
    return absl::OkStatus();
  }

  LinkExpectation Expectation() const {
    LinkExpectation expected = {.group = options_.group,
                                .rank = options_.rank,
                                .ranks = static_cast<uint32_t>(ranks_),
                                .host = host_,
                                .is_shm = is_shm()};
    for (const auto& link : set_.links) expected.connected.push_back(link != nullptr);
    return expected;
  }

  absl::Status Admit(FileDescriptor socket) {
    TcpStream stream(std::move(socket), options_.tls, TlsSide::kAccepting);
    const LinkWait patience = {
        Deadline(std::min(wait_.deadline.when(), Deadline::After(kHelloTimeout).when())),
        wait_.interrupt};
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> body,
                              ReceiveLinkMessage(stream, patience));
    PUSHPULL_ASSIGN_OR_RETURN(const LinkHello hello, DecodeLinkHello(body));
    LinkWelcome welcome = {.admitted = CheckLinkHello(hello, Expectation())};
    if (welcome.admitted.ok()) welcome.admitted = CheckPeer(hello.from, stream);
    std::optional<DescriptorInbox> inbox;
    if (welcome.admitted.ok() && hello.shm) {
      PUSHPULL_ASSIGN_OR_RETURN(inbox, OpenInbox());
      welcome.admitted = SendOwn(*hello.shm);
      welcome.shm = inbox->address();
    }
    PUSHPULL_RETURN_IF_ERROR(SendLinkMessage(stream, EncodeLinkWelcome(welcome), patience));
    PUSHPULL_RETURN_IF_ERROR(welcome.admitted);
    if (!inbox) return AddTcpLink(hello.from, std::move(stream));
    PUSHPULL_RETURN_IF_ERROR(AwaitReady(stream));
    PUSHPULL_RETURN_IF_ERROR(SendLinkMessage(stream, EncodeLinkReady({}), patience));
    return AddShmLink(hello.from, stream.Release(), *inbox);
  }

  const RankListener& listener_;
  const MeshOptions& options_;
  const size_t ranks_;
  const LinkWait wait_;
  const uint64_t host_;
  std::shared_ptr<OwnRankMemory> memory_;
  LinkSet set_;
  std::string last_refusal_;
};

}  // namespace

absl::StatusOr<RankListener> RankListener::Listen(const HostPort& address) {
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, ListenForRanks(address));
  PUSHPULL_ASSIGN_OR_RETURN(const uint16_t port, BoundPort(socket));
  return RankListener(std::move(socket), port);
}

absl::StatusOr<LinkSet> ConnectRanks(const RankListener& listener,
                                     const MeshOptions& options,
                                     Deadline deadline) {
  return MeshBuilder(listener, options, deadline).Build();
}

}  // namespace pushpull
