// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/link_hello.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

// "PPrank01", "PPrank02", ...: a peer that sends something else is not a rank of this version.
constexpr uint64_t kHelloMagic = 0x31306B6E61725050;
constexpr uint64_t kWelcomeMagic = 0x32306B6E61725050;
constexpr uint64_t kReadyMagic = 0x33306B6E61725050;

void WriteOffer(ByteWriter& writer, const std::optional<ShmOffer>& offer) {
  writer(offer.has_value());
  if (offer) writer(offer->name, offer->token);
}

void ReadOffer(ByteReader& reader, std::optional<ShmOffer>& offer) {
  bool has_offer = false;
  reader(has_offer);
  if (has_offer) reader(offer.emplace().name, offer->token);
}

// `read_fields`: reads the fields after the magic.
template <typename Message, typename ReadFields>
absl::StatusOr<Message> Decode(std::span<const std::byte> body,
                               uint64_t expected,
                               ReadFields read_fields) {
  ByteReader reader(body);
  uint64_t magic = 0;
  reader(magic);
  Message message;
  read_fields(reader, message);
  if (reader.ok() && magic == expected) return message;
  return absl::DataLossError(
      "what has connected is no rank of a communicator, or one of another version");
}

}  // namespace

std::vector<std::byte> EncodeLinkHello(const LinkHello& hello) {
  ByteWriter writer;
  writer(kHelloMagic, hello.group, hello.from, hello.to, hello.ranks, hello.host);
  WriteOffer(writer, hello.shm);
  return writer.Take();
}

std::vector<std::byte> EncodeLinkWelcome(const LinkWelcome& welcome) {
  ByteWriter writer;
  writer(kWelcomeMagic, welcome.admitted);
  WriteOffer(writer, welcome.shm);
  return writer.Take();
}

std::vector<std::byte> EncodeLinkReady(const LinkReady& ready) {
  return BytesOf(kReadyMagic, ready.done);
}

absl::StatusOr<LinkHello> DecodeLinkHello(std::span<const std::byte> body) {
  return Decode<LinkHello>(body, kHelloMagic, [](ByteReader& reader, LinkHello& hello) {
    reader(hello.group, hello.from, hello.to, hello.ranks, hello.host);
    ReadOffer(reader, hello.shm);
  });
}

absl::StatusOr<LinkWelcome> DecodeLinkWelcome(std::span<const std::byte> body) {
  return Decode<LinkWelcome>(body, kWelcomeMagic, [](ByteReader& reader, LinkWelcome& welcome) {
    welcome.admitted = reader.GetStatus();
    ReadOffer(reader, welcome.shm);
  });
}

absl::StatusOr<LinkReady> DecodeLinkReady(std::span<const std::byte> body) {
  return Decode<LinkReady>(body, kReadyMagic, [](ByteReader& reader, LinkReady& ready) {
    ready.done = reader.GetStatus();
  });
}

absl::Status CheckLinkHello(const LinkHello& hello, const LinkExpectation& expected) {
  const std::string who = absl::StrCat("rank ", hello.from, " of ", hello.ranks);
  if (hello.group != expected.group) {
    return absl::PermissionDeniedError(absl::StrCat(
        who, " belongs to another group of ranks: give all of them the same token and addresses"));
  }
  if (hello.ranks != expected.ranks || hello.to != expected.rank) {
    return absl::InvalidArgumentError(absl::StrCat(who,
                                                   " has called for rank ",
                                                   hello.to,
                                                   ", here is rank ",
                                                   expected.rank,
                                                   " of ",
                                                   expected.ranks,
                                                   ": all ranks need the same list of addresses"));
  }
  // The higher rank connects to the lower one.
  if (hello.from <= expected.rank || hello.from >= expected.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " does not connect to rank ", expected.rank, ": only higher ranks do"));
  }
  if (expected.connected[hello.from])
    return absl::AlreadyExistsError(absl::StrCat(who, " is connected already"));
  if (hello.shm.has_value() != expected.is_shm) {
    return absl::InvalidArgumentError(absl::StrCat(who,
                                                   " uses ",
                                                   hello.shm ? "shm" : "tcp",
                                                   ", here it is ",
                                                   expected.is_shm ? "shm" : "tcp",
                                                   ": all ranks need the same channel"));
  }
  if (expected.is_shm && hello.host != expected.host) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " is on another host: shm is for ranks of one host, use tcp"));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
