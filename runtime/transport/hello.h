// SPDX-License-Identifier: Apache-2.0
//
// The first two frames of a connection: the hello and its answer. Their metas also negotiate
// payload checksums and shared memory, and carry the clocks of both ends.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/transport/channel.h"

namespace pushpull {

// An end's request about payload checksums.
enum class PayloadChecksums : uint8_t {
  kAuto = 0,  // on between hosts, off on the same host
  kOn = 1,
  kOff = 2,  // for links that verify their bytes themselves, as TLS does
};

// auto (the default), on or off; the same for both ends of a job's connections.
inline constexpr char kPayloadChecksumVariable[] = "PUSHPULL_PAYLOAD_CHECKSUM";

// kInvalidArgument names the variable and its value.
absl::StatusOr<PayloadChecksums> PayloadChecksumsFrom(
    const std::map<std::string, std::string>& environment);

// The same number in all processes that share this boot of the machine and this time namespace, and
// a different one in all others: processes with the same number read the same steady clock. Random
// if the kernel does not provide these, so that two hosts are never taken for one. Reads two small
// files.
uint64_t HostIdentity();

// A random secret, known only to an end that received it or can read the memory that contains it.
using ShmToken = std::array<uint64_t, 2>;

// Where the connecting side receives the descriptor of shared memory (shm/descriptor_inbox.h).
struct ShmOffer {
  std::string name;  // of an abstract socket of the network namespace
  ShmToken token{};  // accompanies the descriptor: others may send something there
};

// The meta of kHello.
struct HelloMeta {
  Hello hello;
  uint64_t host = 0;  // HostIdentity() of the sender
  PayloadChecksums payload_checksums = PayloadChecksums::kAuto;
  std::optional<ShmOffer> shm;
};

// The meta of kHelloAck.
struct HelloAckMeta {
  absl::Status admitted;  // why the hello was rejected; the rest is unused then
  uint32_t lane_count = 0;
  uint64_t host = 0;
  bool has_payload_checksums = false;
  int64_t hello_sent_at = 0;      // the connecting side's clock, echoed, ns
  int64_t hello_received_at = 0;  // the accepting side's clock, ns
  // If the hello has an address for memory. OK: the memory was sent there and contains shm_proof.
  absl::Status shm_made;
  ShmToken shm_proof{};
};

// The job's name and a rejection's text are truncated to kTextBytesMax.
std::vector<std::byte> EncodeHello(const HelloMeta& meta);
// kDataLoss: too short, or a field out of range.
absl::StatusOr<HelloMeta> DecodeHello(std::span<const std::byte> meta);

std::vector<std::byte> EncodeHelloAck(const HelloAckMeta& meta);
absl::StatusOr<HelloAckMeta> DecodeHelloAck(std::span<const std::byte> meta);

// The accepting side's decision: on if either end requests it, else off if either end declines it,
// else on between hosts.
bool AgreeOnPayloadChecksums(PayloadChecksums ours, PayloadChecksums theirs, bool is_same_host);

}  // namespace pushpull
