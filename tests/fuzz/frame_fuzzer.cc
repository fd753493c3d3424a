// SPDX-License-Identifier: Apache-2.0
//
// Bytes as a hostile peer may send them, in any split, through the reader of frames and the
// decoders of every meta. The first byte says how the stream is split and whether headers are
// repaired: otherwise no input would get past the checksum.
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/exchange/exchange_frame.h"
#include "runtime/replication/joint_frame.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/frame_reader.h"

namespace pushpull {
namespace {

using Bytes = std::span<const std::byte>;

// What a decoder accepts must survive another round unchanged, NaNs aside.
void CheckRoundTrip(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> first;
  std::array<std::byte, kFrameHeaderBytes> second;
  EncodeFrameHeader(header, first);
  const absl::StatusOr<FrameHeader> again = DecodeFrameHeader(first);
  PUSHPULL_CHECK(again.ok());
  EncodeFrameHeader(*again, second);
  PUSHPULL_CHECK(first == second);
}

void DecodeMetas(Bytes meta) {
  if (const auto hello = DecodeHello(meta); hello.ok())
    PUSHPULL_CHECK(DecodeHello(EncodeHello(*hello)).ok());
  if (const auto ack = DecodeHelloAck(meta); ack.ok())
    PUSHPULL_CHECK(DecodeHelloAck(EncodeHelloAck(*ack)).ok());
  if (const auto timing = DecodePublishedTiming(meta); timing.ok()) {
    const std::vector<std::byte> again = EncodePublishedTiming(*timing);
    PUSHPULL_CHECK(std::equal(again.begin(), again.end(), meta.begin()));
  }
  if (const auto joint = DecodeJoint(meta); joint.ok()) {
    const std::vector<std::byte> again = EncodeJoint(*joint);
    PUSHPULL_CHECK(std::equal(again.begin(), again.end(), meta.begin(), meta.end()));
  }
  PUSHPULL_CHECK(!DecodeRefusal(meta).ok());
  if (const auto exchange = DecodeExchange(meta); exchange.ok()) {
    const auto again = DecodeExchange(EncodeExchange(*exchange));
    PUSHPULL_CHECK(again.ok() && again->spec == exchange->spec && again->label == exchange->label);
    PUSHPULL_CHECK(!Describe(again->spec).empty());
  }
  if (const auto answer = DecodeExchangeAnswer(meta); answer.ok()) {
    const auto again = DecodeExchangeAnswer(EncodeExchangeAnswer(*answer));
    PUSHPULL_CHECK(again.ok() && again->pair == answer->pair && again->head == answer->head);
  }
}

class CheckingSink final : public FrameSink {
 public:
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override {
    PUSHPULL_CHECK(header.payload_bytes > 0 && header.payload_bytes <= kFramePayloadBytesMax);
    // Every third one is not wanted.
    if (++num_payloads_ % 3 == 0) return {};
    payload_.resize(header.payload_bytes);
    return payload_;
  }
  void OnFrame(const ReceivedFrame& frame) override {
    PUSHPULL_CHECK(frame.meta.size() == frame.header.meta_bytes);
    PUSHPULL_CHECK(frame.payload.empty() || frame.payload.size() == frame.header.payload_bytes);
    CheckRoundTrip(frame.header);
    DecodeMetas(frame.meta);
  }
  bool IsOpen() const override { return true; }

 private:
  size_t num_payloads_ = 0;
  std::vector<std::byte> payload_;
};

template <typename Number>
Number At(Bytes bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// Gives every header magic, version, lengths within the input and a right checksum.
void Repair(std::vector<std::byte>& stream) {
  for (size_t at = 0; at + kFrameHeaderBytes <= stream.size();) {
    const std::span<std::byte> header = std::span(stream).subspan(at, kFrameHeaderBytes);
    std::memcpy(header.data(), "PuPu\x01\x00", 6);
    const uint16_t meta_bytes = At<uint16_t>(header, 12) % (kFrameMetaBytesMax + 1);
    const uint32_t payload_bytes = At<uint32_t>(header, 16) % (kFramePayloadBytesMax + 1);
    std::memcpy(header.data() + 12, &meta_bytes, sizeof meta_bytes);
    std::memcpy(header.data() + 16, &payload_bytes, sizeof payload_bytes);
    const uint64_t checksum = XXH3_64bits(header.data(), 120);
    std::memcpy(header.data() + 120, &checksum, sizeof checksum);
    at += kFrameHeaderBytes + meta_bytes + payload_bytes;
  }
}

void Feed(Bytes stream, size_t part) {
  CheckingSink sink;
  FrameReader reader(sink);
  while (!stream.empty()) {
    size_t taken = 0;
    for (const iovec& buffer : reader.NextBuffers()) {
      const size_t fits = std::min({buffer.iov_len, part - taken, stream.size()});
      std::copy_n(stream.begin(), fits, static_cast<std::byte*>(buffer.iov_base));
      stream = stream.subspan(fits);
      taken += fits;
    }
    PUSHPULL_CHECK(taken > 0);
    if (!reader.Consume(taken, SteadyTime{}).ok()) return;
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> stream(bytes.begin() + 1, bytes.end());
  pushpull::DecodeMetas(stream);
  if ((data[0] & 1) != 0) pushpull::Repair(stream);
  pushpull::Feed(stream, size_t{1} << (data[0] >> 1) % 18);
  return 0;
}
