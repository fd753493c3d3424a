// SPDX-License-Identifier: Apache-2.0
//
// How two ranks recognise each other when they connect, and exchange shared memory. These are
// message bodies; on the wire each follows its length. Pure.
//
//   connecting rank (the higher one)              accepting rank
//   LinkHello: who, to whom, of which group --->  checks it
//                                          <---  LinkWelcome: admitted, or why not
//   over shm also, with descriptors passed from inbox to inbox:
//   has an inbox before its hello          <---  sends its memory and its doorbell, then
//   LinkWelcome sends its own, then LinkReady          --->  takes them
//                                          <---  LinkReady
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/transport/hello.h"

namespace pushpull {

// The longest body; a peer that announces more is refused.
constexpr size_t kLinkMessageBytesMax = 8192;

// Distinguishes the ranks of one communicator from all others: they are started with the same
// random number.
using GroupToken = std::array<uint64_t, 2>;

struct LinkHello {
  GroupToken group{};
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t ranks = 0;
  uint64_t host = 0;            // HostIdentity()
  std::optional<ShmOffer> shm;  // over shared memory: the sender's inbox
};

struct LinkWelcome {
  absl::Status admitted;
  std::optional<ShmOffer> shm;
};

// Confirms that descriptors were sent or taken.
struct LinkReady {
  absl::Status done;
};

std::vector<std::byte> EncodeLinkHello(const LinkHello& hello);
std::vector<std::byte> EncodeLinkWelcome(const LinkWelcome& welcome);
std::vector<std::byte> EncodeLinkReady(const LinkReady& ready);

// kDataLoss: too short, or not such a message: the peer is something else.
absl::StatusOr<LinkHello> DecodeLinkHello(std::span<const std::byte> body);
absl::StatusOr<LinkWelcome> DecodeLinkWelcome(std::span<const std::byte> body);
absl::StatusOr<LinkReady> DecodeLinkReady(std::span<const std::byte> body);

// What the accepting rank expects, and what it knows about the others.
struct LinkExpectation {
  GroupToken group{};
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint64_t host = 0;
  bool is_shm = false;
  std::vector<bool> connected;  // by rank
};

// kPermissionDenied: another group; kInvalidArgument: a rank that does not exist or must not
// connect here, or another channel; kAlreadyExists: that rank is already connected;
// kFailedPrecondition: shared memory with another host.
absl::Status CheckLinkHello(const LinkHello& hello, const LinkExpectation& expected);

}  // namespace pushpull
