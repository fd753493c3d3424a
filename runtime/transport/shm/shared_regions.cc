// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shared_regions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

// Payloads are arrays of numbers that are read in place.
constexpr uint64_t kPlaceAlignment = sizeof(float);

absl::Status Unexpected(absl::string_view what, uint64_t region) {
  return absl::DataLossError(
      absl::StrCat("shared memory: ", what, " of region ", region, ", which is not expected"));
}

}  // namespace

void AppendPlace(const RegionPlace& place, std::vector<std::byte>& meta) {
  const size_t at = meta.size();
  meta.resize(at + kRegionPlaceBytes);
  HeaderWriter writer{std::span(meta).subspan(at)};
  writer(place.region, place.offset);
}

absl::StatusOr<RegionPlace> TakePlace(std::vector<std::byte>& meta) {
  if (meta.size() < kRegionPlaceBytes)
    return absl::DataLossError("a frame refers to shared memory without a place");
  ByteReader reader(std::span<const std::byte>(meta).last(kRegionPlaceBytes));
  RegionPlace place;
  reader(place.region, place.offset);
  meta.resize(meta.size() - kRegionPlaceBytes);
  return place;
}

// ---- memory of this end ----

std::vector<std::byte> SharedRegions::Offer(std::shared_ptr<const SharedMemory> memory,
                                            ShareRefused on_refused) {
  const uint64_t region = own_.size();
  const uint64_t num_bytes = memory->bytes().size();
  own_.push_back({.memory = std::move(memory), .on_refused = std::move(on_refused)});
  return BytesOf(Message::kOffered, region, num_bytes);
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnInbox(uint64_t region,
                                                              const ShmOffer& inbox) {
  if (region >= own_.size() || own_[region].is_taken) return Unexpected("an inbox", region);
  const absl::Status sent = SendDescriptor(inbox, own_[region].memory->descriptor());
  if (!sent.ok() && own_[region].on_refused) std::exchange(own_[region].on_refused, nullptr)(sent);
  return BytesOf(Message::kSent, region);
}

absl::Status SharedRegions::OnTaken(uint64_t region, const absl::Status& taken) {
  if (region >= own_.size() || own_[region].is_taken) return Unexpected("an answer", region);
  Own& own = own_[region];
  if (!taken.ok()) {
    if (own.on_refused) std::exchange(own.on_refused, nullptr)(taken);
    return absl::OkStatus();
  }
  own.is_taken = true;
  own_by_end_[&own.memory->bytes().back()] = region;
  return absl::OkStatus();
}

std::optional<RegionPlace> SharedRegions::Find(std::span<const std::byte> payload) const {
  if (payload.empty()) return std::nullopt;
  const auto found = own_by_end_.lower_bound(&payload.back());
  if (found == own_by_end_.end()) return std::nullopt;
  const std::span<const std::byte> memory = own_[found->second].memory->bytes();
  if (std::less<>()(payload.data(), memory.data())) return std::nullopt;
  const auto offset = static_cast<uint64_t>(payload.data() - memory.data());
  if (offset % kPlaceAlignment != 0) return std::nullopt;
  return RegionPlace{.region = found->second, .offset = offset};
}

// ---- memory of the peer ----

absl::StatusOr<Payload> SharedRegions::Resolve(const RegionPlace& place, size_t num_bytes) const {
  const auto found = theirs_.find(place.region);
  const bool is_known = found != theirs_.end() && found->second.memory != nullptr;
  const uint64_t size = is_known ? found->second.num_bytes : 0;
  const bool is_inside = num_bytes <= size && place.offset <= size - num_bytes;
  if (!is_known || !is_inside || place.offset % kPlaceAlignment != 0) {
    return absl::DataLossError(absl::StrFormat(
        "a frame refers to %d bytes at %d of region %d of shared memory, which has %d",
        num_bytes,
        place.offset,
        place.region,
        size));
  }
  const std::shared_ptr<const AttachedMemory>& memory = found->second.memory;
  return Payload{memory->bytes().subspan(place.offset, num_bytes), memory};
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnOffered(uint64_t region,
                                                                uint64_t num_bytes) {
  if (theirs_.contains(region)) return Unexpected("a second offer", region);
  if (theirs_.size() >= kRegionsMax || num_waiting_ >= kWaitingMax)
    return BytesOf(Message::kTaken,
                   region,
                   absl::ResourceExhaustedError("too many regions on one connection"));
  absl::StatusOr<DescriptorInbox> inbox = DescriptorInbox::Open(prefix_);
  if (!inbox.ok()) return BytesOf(Message::kTaken, region, inbox.status());
  const ShmOffer address = inbox->address();
  ++num_waiting_;
  theirs_.emplace(region,
                  Theirs{.num_bytes = num_bytes, .inbox = *std::move(inbox), .memory = nullptr});
  return BytesOf(Message::kInbox, region, address.name, address.token);
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnSent(uint64_t region) {
  const auto found = theirs_.find(region);
  if (found == theirs_.end() || !found->second.inbox) return Unexpected("a descriptor", region);
  const absl::StatusOr<FileDescriptor> descriptor = found->second.inbox->Take();
  found->second.inbox.reset();
  --num_waiting_;
  if (!descriptor.ok()) return BytesOf(Message::kTaken, region, descriptor.status());
  absl::StatusOr<std::shared_ptr<const AttachedMemory>> attached =
      AttachedMemory::Attach(*descriptor, found->second.num_bytes);
  if (attached.ok()) found->second.memory = *attached;
  return BytesOf(Message::kTaken, region, attached.status());
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::Answer(std::span<const std::byte> message) {
  ByteReader reader(message);
  Message kind{};
  uint64_t region = 0;
  uint64_t num_bytes = 0;
  ShmOffer inbox;
  absl::Status taken;
  reader(kind, region);
  if (kind == Message::kOffered) reader(num_bytes);
  if (kind == Message::kInbox) reader(inbox.name, inbox.token);
  if (kind == Message::kTaken) reader(taken);
  if (!reader.ok()) return absl::DataLossError("a message about shared memory is too short");
  switch (kind) {
    case Message::kOffered:
      return OnOffered(region, num_bytes);
    case Message::kInbox:
      return OnInbox(region, inbox);
    case Message::kSent:
      return OnSent(region);
    case Message::kTaken:
      PUSHPULL_RETURN_IF_ERROR(OnTaken(region, taken));
      return std::vector<std::byte>();
  }
  return absl::DataLossError(absl::StrCat(
      "a message about shared memory of kind ", static_cast<int>(kind), ", which is unknown"));
}

}  // namespace pushpull
