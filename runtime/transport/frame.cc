// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/frame.h"

#if defined(__x86_64__)
#define XXH_DISPATCH_DISABLE_REPLACE  // only functions with _dispatch in their name
#include <xxh_x86dispatch.h>
#endif
#include <xxhash.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

// "PuPu"; the first bytes of every frame of every version.
constexpr uint32_t kMagic = 0x75507550;

// The checksum is the last field.
constexpr size_t kHeaderChecksumAt = kFrameHeaderBytes - sizeof(uint64_t);

// The fields between version and checksum, as in docs/decisions/0002-frame-layout.md.
template <typename Visit, typename Header>
void VisitFrameHeader(Visit& visit, Header& header) {
  visit(header.type,
        header.flags,
        header.codec,
        header.dtype,
        header.reduction,
        header.priority,
        header.meta_bytes,
        Reserved<2>{},
        header.payload_bytes,
        header.worker,
        header.incarnation,
        header.epoch.term,
        header.epoch.counter,
        header.chunk,
        header.step,
        header.learning_rate,
        header.weight,
        header.trace_id,
        header.sent_at,
        header.payload_checksum,
        header.clock,
        header.base_version);
}

template <typename Visit, typename Timing>
void VisitPublishedTiming(Visit& visit, Timing& timing) {
  visit(timing.push_sent_at,
        timing.received_at,
        timing.server_queue_ns,
        timing.sum_ns,
        timing.wait_ns,
        timing.optimize_ns,
        timing.replicate_ns,
        timing.published_at,
        timing.contributors);
}

bool IsKnown(FrameType type) {
  return type >= FrameType::kHello && type <= FrameType::kExchanged;
}

absl::Status OutOfRange(absl::string_view field, uint64_t value) {
  return absl::DataLossError(absl::StrCat("frame header: ", field, " ", value, " is out of range"));
}

absl::Status CheckFields(const FrameHeader& header) {
  if (!IsKnown(header.type)) return OutOfRange("type", static_cast<uint64_t>(header.type));
  constexpr int kKnownFlags = kFlagPayloadChecksum | kFlagAdmission | kFlagInRegion |
                              kFlagTakesInPlace | kFlagOptimizerState | kFlagJoint |
                              kFlagNoGradient;
  if ((header.flags & ~kKnownFlags) != 0) return OutOfRange("flags", header.flags);
  const bool has_codec = header.codec != Codec::kNone;
  if (!IsKnown(header.codec) || (has_codec && !IsPush(header.type)))
    return OutOfRange("codec", static_cast<uint64_t>(header.codec));
  if (!IsKnown(header.dtype)) return OutOfRange("dtype", static_cast<uint64_t>(header.dtype));
  if (!IsKnown(header.reduction))
    return OutOfRange("reduction", static_cast<uint64_t>(header.reduction));
  if (header.meta_bytes > kFrameMetaBytesMax)
    return OutOfRange("length of the meta", header.meta_bytes);
  if (header.payload_bytes > kFramePayloadBytesMax)
    return OutOfRange("length of the payload", header.payload_bytes);
  return absl::OkStatus();
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  HeaderWriter put(out);
  put(kMagic, kFrameVersion);
  VisitFrameHeader(put, header);
  put(uint64_t{XXH3_64bits(out.data(), kHeaderChecksumAt)});
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  ByteReader get(bytes);
  if (get.Get<uint32_t>() != kMagic)
    return absl::DataLossError("frame header: these bytes are not a Pushpull frame");
  if (LoadNumber<uint64_t>(bytes.subspan<kHeaderChecksumAt>()) !=
      XXH3_64bits(bytes.data(), kHeaderChecksumAt))
    return absl::DataLossError("frame header: wrong checksum");
  const auto version = get.Get<uint16_t>();
  if (version > kFrameVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "frame header: version ", version, ", this program knows versions up to ", kFrameVersion));
  }
  if (version == 0) return OutOfRange("version", version);
  FrameHeader header;
  VisitFrameHeader(get, header);
  PUSHPULL_RETURN_IF_ERROR(CheckFields(header));
  return header;
}

uint64_t ChecksumPayload(std::span<const std::byte> payload) {
#if defined(__x86_64__)
  // Uses the widest vectors of this processor: two to three times as fast as the baseline that the
  // library's other functions are built for.
  return XXH3_64bits_dispatch(payload.data(), payload.size());
#else
  return XXH3_64bits(payload.data(), payload.size());
#endif
}

std::vector<std::byte> EncodePublishedTiming(const PublishedTiming& timing) {
  ByteWriter writer;
  VisitPublishedTiming(writer, timing);
  return writer.Take();
}

absl::StatusOr<PublishedTiming> DecodePublishedTiming(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  PublishedTiming timing;
  VisitPublishedTiming(reader, timing);
  if (!reader.ok()) {
    return absl::DataLossError(absl::StrCat(
        "timing of a publication: got ", meta.size(), " bytes, expected ", kPublishedTimingBytes));
  }
  return timing;
}

std::vector<std::byte> EncodeRefusal(const absl::Status& status) {
  return BytesOf(status);
}

absl::Status DecodeRefusal(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  absl::Status status = reader.GetStatus();
  if (!reader.ok()) {
    return absl::DataLossError(absl::StrCat("refusal: its ", meta.size(), " bytes are too short"));
  }
  if (status.ok()) return absl::DataLossError("refusal: its status is OK");
  return status;
}

}  // namespace pushpull
