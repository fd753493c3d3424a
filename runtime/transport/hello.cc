// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/hello.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"
#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

absl::Status TooShort(absl::string_view what, size_t num_bytes) {
  return absl::DataLossError(absl::StrCat(what, ": its ", num_bytes, " bytes are too short"));
}

template <typename Visit, typename Meta>
void VisitHelloAck(Visit& visit, Meta& meta) {
  visit(meta.admitted,
        meta.lane_count,
        meta.host,
        meta.has_payload_checksums,
        meta.hello_sent_at,
        meta.hello_received_at,
        meta.shm_made,
        meta.shm_proof);
}

}  // namespace

std::string PeerName(const Hello& hello) {
  return hello.server ? ToString(*hello.server) : ToString(hello.worker);
}

uint64_t HostIdentity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  if (identity.empty()) {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }
  // Clocks differ between time namespaces (time_namespaces(7)).
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/time", space.data(), space.size() - 1) > 0) identity += space.data();
  return XXH3_64bits(identity.data(), identity.size());
}

std::vector<std::byte> EncodeHello(const HelloMeta& meta) {
  ByteWriter writer;
  const Hello& hello = meta.hello;
  writer(hello.job, hello.worker, hello.incarnation, hello.lane);
  writer(hello.server.has_value(), hello.server.value_or(ServerId{}), meta.host);
  writer(meta.shm.has_value());
  if (meta.shm) writer(meta.shm->name, meta.shm->token);
  writer(meta.payload_checksums);
  return writer.Take();
}

absl::StatusOr<HelloMeta> DecodeHello(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  HelloMeta decoded;
  Hello& hello = decoded.hello;
  bool is_server = false;
  bool has_shm = false;
  ServerId server;
  reader(hello.job, hello.worker, hello.incarnation, hello.lane);
  reader(is_server, server, decoded.host, has_shm);
  if (is_server) hello.server = server;
  if (has_shm) reader(decoded.shm.emplace().name, decoded.shm->token);
  reader(decoded.payload_checksums);
  if (!reader.ok()) return TooShort("hello", meta.size());
  if (decoded.payload_checksums > PayloadChecksums::kOff) {
    return absl::DataLossError(absl::StrCat("hello: payload checksum ",
                                            static_cast<int>(decoded.payload_checksums),
                                            " is out of range"));
  }
  return decoded;
}

std::vector<std::byte> EncodeHelloAck(const HelloAckMeta& meta) {
  ByteWriter writer;
  VisitHelloAck(writer, meta);
  return writer.Take();
}

absl::StatusOr<HelloAckMeta> DecodeHelloAck(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  HelloAckMeta decoded;
  VisitHelloAck(reader, decoded);
  if (!reader.ok()) return TooShort("answer to a hello", meta.size());
  return decoded;
}

bool AgreeOnPayloadChecksums(PayloadChecksums ours, PayloadChecksums theirs, bool is_same_host) {
  if (ours == PayloadChecksums::kOn || theirs == PayloadChecksums::kOn) return true;
  if (ours == PayloadChecksums::kOff || theirs == PayloadChecksums::kOff) return false;
  return !is_same_host;
}

absl::StatusOr<PayloadChecksums> PayloadChecksumsFrom(
    const std::map<std::string, std::string>& environment) {
  const std::string text = SettingOf(environment, kPayloadChecksumVariable, "auto");
  if (text == "auto") return PayloadChecksums::kAuto;
  if (text == "on") return PayloadChecksums::kOn;
  if (text == "off") return PayloadChecksums::kOff;
  return absl::InvalidArgumentError(
      absl::StrCat(kPayloadChecksumVariable, ": must be auto, on or off, is \"", text, "\""));
}

}  // namespace pushpull
