// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shared_regions.h"

#include <utility>

#include "absl/strings/str_cat.h"

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
  StoreNumber(place.region, std::span(meta).subspan(at));
  StoreNumber(place.offset, std::span(meta).subspan(at + sizeof place.region));
}

absl::StatusOr<RegionPlace> TakePlace(std::vector<std::byte>& meta) {
  if (meta.size() < kRegionPlaceBytes)
    return absl::DataLossError("a frame refers to shared memory without a place");
  ByteReader reader(std::span<const std::byte>(meta).last(kRegionPlaceBytes));
  RegionPlace place;
  place.region = reader.Get<uint64_t>();
  place.offset = reader.Get<uint64_t>();
  meta.resize(meta.size() - kRegionPlaceBytes);
  return place;
}

// ---- memory of this end ----

std::vector<std::byte> SharedRegions::Offer(std::shared_ptr<const SharedMemory> memory,
                                            ShareRefused on_refused) {
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(Message::kOffered));
  writer.Put(uint64_t{own_.size()});
  writer.Put(uint64_t{memory->bytes().size()});
  own_.push_back({.memory = std::move(memory), .on_refused = std::move(on_refused)});
  return writer.Take();
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnInbox(uint64_t region,
                                                              const ShmOffer& inbox) {
  if (region >= own_.size() || own_[region].is_taken) return Unexpected("an inbox", region);
  const absl::Status sent = SendDescriptor(inbox, own_[region].memory->descriptor());
  if (!sent.ok() && own_[region].on_refused) std::exchange(own_[region].on_refused, nullptr)(sent);
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(Message::kSent));
  writer.Put(region);
  return writer.Take();
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
    return absl::DataLossError(absl::StrCat("a frame refers to ",
                                            num_bytes,
                                            " bytes at ",
                                            place.offset,
                                            " of region ",
                                            place.region,
                                            " of shared memory, which has ",
                                            size));
  }
  const std::shared_ptr<const AttachedMemory>& memory = found->second.memory;
  return Payload{memory->bytes().subspan(place.offset, num_bytes), memory};
}

std::vector<std::byte> SharedRegions::Taken(uint64_t region, const absl::Status& status) {
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(Message::kTaken));
  writer.Put(region);
  writer.PutStatus(status);
  return writer.Take();
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnOffered(uint64_t region,
                                                                uint64_t num_bytes) {
  if (theirs_.contains(region)) return Unexpected("a second offer", region);
  if (theirs_.size() >= kRegionsMax || num_waiting_ >= kWaitingMax)
    return Taken(region, absl::ResourceExhaustedError("too many regions on one connection"));
  absl::StatusOr<DescriptorInbox> inbox = DescriptorInbox::Open(prefix_);
  if (!inbox.ok()) return Taken(region, inbox.status());
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(Message::kInbox));
  writer.Put(region);
  writer.PutText(inbox->address().name);
  for (const uint64_t half : inbox->address().token) writer.Put(half);
  ++num_waiting_;
  theirs_.emplace(region,
                  Theirs{.num_bytes = num_bytes, .inbox = *std::move(inbox), .memory = nullptr});
  return writer.Take();
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::OnSent(uint64_t region) {
  const auto found = theirs_.find(region);
  if (found == theirs_.end() || !found->second.inbox) return Unexpected("a descriptor", region);
  const absl::StatusOr<FileDescriptor> descriptor = found->second.inbox->Take();
  found->second.inbox.reset();
  --num_waiting_;
  if (!descriptor.ok()) return Taken(region, descriptor.status());
  absl::StatusOr<std::shared_ptr<const AttachedMemory>> attached =
      AttachedMemory::Attach(*descriptor, found->second.num_bytes);
  if (attached.ok()) found->second.memory = *attached;
  return Taken(region, attached.status());
}

absl::StatusOr<std::vector<std::byte>> SharedRegions::Answer(std::span<const std::byte> message) {
  ByteReader reader(message);
  const auto kind = static_cast<Message>(reader.Get<uint8_t>());
  const auto region = reader.Get<uint64_t>();
  const auto num_bytes = kind == Message::kOffered ? reader.Get<uint64_t>() : 0;
  ShmOffer inbox;
  if (kind == Message::kInbox) {
    inbox.name = reader.GetText();
    for (uint64_t& half : inbox.token) half = reader.Get<uint64_t>();
  }
  const absl::Status taken = kind == Message::kTaken ? reader.GetStatus() : absl::OkStatus();
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
