// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/hello.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

absl::Status TooShort(absl::string_view what, size_t num_bytes) {
  return absl::DataLossError(absl::StrCat(what, ": its ", num_bytes, " bytes are too short"));
}

void PutToken(const ShmToken& token, ByteWriter& writer) {
  for (const uint64_t half : token) writer.Put(half);
}

ShmToken GetToken(ByteReader& reader) {
  ShmToken token;
  for (uint64_t& half : token) half = reader.Get<uint64_t>();
  return token;
}

}  // namespace

std::string PeerName(const Hello& hello) {
  return hello.server ? ToString(*hello.server) : ToString(hello.worker);
}

std::vector<std::byte> EncodeHello(const HelloMeta& meta) {
  ByteWriter writer;
  writer.PutText(meta.hello.job);
  writer.Put(meta.hello.worker.value());
  writer.Put(meta.hello.incarnation.value());
  writer.Put(meta.hello.lane);
  writer.Put(static_cast<uint8_t>(meta.hello.server.has_value()));
  writer.Put(meta.hello.server.value_or(ServerId{}).value());
  writer.Put(meta.host);
  writer.Put(static_cast<uint8_t>(meta.shm.has_value()));
  if (meta.shm) {
    writer.PutText(meta.shm->name);
    PutToken(meta.shm->token, writer);
  }
  writer.Put(static_cast<uint8_t>(meta.payload_checksums));
  return writer.Take();
}

absl::StatusOr<HelloMeta> DecodeHello(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  HelloMeta decoded;
  decoded.hello.job = reader.GetText();
  decoded.hello.worker = WorkerId{reader.Get<uint32_t>()};
  decoded.hello.incarnation = Incarnation{reader.Get<uint64_t>()};
  decoded.hello.lane = reader.Get<uint32_t>();
  const bool is_server = reader.Get<uint8_t>() != 0;
  const ServerId server{reader.Get<uint32_t>()};
  if (is_server) decoded.hello.server = server;
  decoded.host = reader.Get<uint64_t>();
  if (reader.Get<uint8_t>() != 0) {
    std::string name = reader.GetText();
    decoded.shm = ShmOffer{.name = std::move(name), .token = GetToken(reader)};
  }
  decoded.payload_checksums = static_cast<PayloadChecksums>(reader.Get<uint8_t>());
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
  writer.PutStatus(meta.admitted);
  writer.Put(meta.lane_count);
  writer.Put(meta.host);
  writer.Put(static_cast<uint8_t>(meta.has_payload_checksums));
  writer.Put(meta.hello_sent_at);
  writer.Put(meta.hello_received_at);
  writer.PutStatus(meta.shm_attached);
  PutToken(meta.shm_proof, writer);
  return writer.Take();
}

absl::StatusOr<HelloAckMeta> DecodeHelloAck(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  HelloAckMeta decoded;
  decoded.admitted = reader.GetStatus();
  decoded.lane_count = reader.Get<uint32_t>();
  decoded.host = reader.Get<uint64_t>();
  decoded.has_payload_checksums = reader.Get<uint8_t>() != 0;
  decoded.hello_sent_at = reader.Get<int64_t>();
  decoded.hello_received_at = reader.Get<int64_t>();
  decoded.shm_attached = reader.GetStatus();
  decoded.shm_proof = GetToken(reader);
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
  const auto found = environment.find(kPayloadChecksumVariable);
  const std::string text = found == environment.end() ? "auto" : found->second;
  if (text == "auto" || text.empty()) return PayloadChecksums::kAuto;
  if (text == "on") return PayloadChecksums::kOn;
  if (text == "off") return PayloadChecksums::kOff;
  return absl::InvalidArgumentError(
      absl::StrCat(kPayloadChecksumVariable, ": must be auto, on or off, is \"", text, "\""));
}

}  // namespace pushpull
