// SPDX-License-Identifier: Apache-2.0
//
// Links between ranks that live in one test: bytes in memory, with room for a few only, so that
// ranks must not wait for room and for bytes in a circle. Exposed bytes stay where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/collective/peer_link.h"

namespace pushpull {

// One direction.
struct MemoryStream {
  size_t capacity = 0;
  bool can_expose = false;
  std::vector<std::byte> bytes = {};
  // Comes after so many of `bytes`. One at a time; empty: none.
  size_t exposed_at = 0;
  std::span<const std::byte> exposed = {};
  uint64_t num_exposed_read = 0;
  bool is_closed = false;
};

class MemoryLink final : public PeerLink {
 public:
  MemoryLink(std::shared_ptr<MemoryStream> out, std::shared_ptr<MemoryStream> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~MemoryLink() override { out_->is_closed = in_->is_closed = true; }
  MemoryLink(const MemoryLink&) = delete;
  MemoryLink& operator=(const MemoryLink&) = delete;

  absl::StatusOr<size_t> Send(std::span<const std::byte> bytes) override {
    if (out_->is_closed) return absl::UnavailableError("has closed the link");
    const size_t count = std::min(bytes.size(), out_->capacity - out_->bytes.size());
    const std::span<const std::byte> part = bytes.first(count);
    out_->bytes.insert(out_->bytes.end(), part.begin(), part.end());
    return count;
  }
  void EndSent() override {}
  absl::Status Flush() override { return absl::OkStatus(); }
  bool has_unsent() const override { return !out_->exposed.empty(); }

  bool CanExpose(std::span<const std::byte> /*bytes*/) const override { return out_->can_expose; }
  absl::StatusOr<size_t> Expose(std::span<const std::byte> bytes) override {
    if (!out_->exposed.empty()) return 0;
    out_->exposed = bytes;
    out_->exposed_at = out_->bytes.size();
    return bytes.size();
  }
  absl::StatusOr<uint64_t> num_exposed_read() override { return out_->num_exposed_read; }

  absl::StatusOr<std::span<const std::byte>> Peek(size_t least, size_t most) override {
    const std::span<const std::byte> there = Readable();
    if (there.size() >= least) return there.first(std::min(most, there.size()));
    if (in_->is_closed) return absl::UnavailableError("has closed the link");
    return std::span<const std::byte>();
  }
  void Consume(size_t num_bytes) override {
    if (ReadsExposed()) {
      in_->exposed = in_->exposed.subspan(num_bytes);
      in_->num_exposed_read += num_bytes;
      return;
    }
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<ptrdiff_t>(num_bytes));
    if (!in_->exposed.empty()) in_->exposed_at -= num_bytes;
  }
  absl::StatusOr<size_t> Receive(std::span<std::byte> into) override {
    const std::span<const std::byte> there = Readable();
    if (there.empty() && in_->is_closed) return absl::UnavailableError("has closed the link");
    const size_t count = std::min(into.size(), there.size());
    std::copy_n(there.begin(), count, into.begin());
    Consume(count);
    return count;
  }
  void EndReceived() override {}

  void Arm(LinkWants /*wants*/) override {}
  void Disarm() override {}
  pollfd WaitFor(LinkWants /*wants*/) const override { return {.fd = -1, .events = 0}; }
  void OnReady(short /*events*/) override {}
  bool is_cheap_to_try() const override { return true; }

 private:
  bool ReadsExposed() const { return !in_->exposed.empty() && in_->exposed_at == 0; }
  std::span<const std::byte> Readable() const {
    if (ReadsExposed()) return in_->exposed;
    return std::span<const std::byte>(in_->bytes)
        .first(in_->exposed.empty() ? in_->bytes.size() : in_->exposed_at);
  }

  const std::shared_ptr<MemoryStream> out_;
  const std::shared_ptr<MemoryStream> in_;
};

// Each rank to each other one, with room for `capacity` bytes a direction.
inline std::vector<LinkSet> MakeMemoryMesh(size_t ranks, size_t capacity, bool can_expose = false) {
  std::vector<LinkSet> sets(ranks);
  for (LinkSet& set : sets) set.links.resize(ranks);
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = a + 1; b < ranks; ++b) {
      const MemoryStream empty = {.capacity = capacity, .can_expose = can_expose};
      auto there = std::make_shared<MemoryStream>(empty);
      auto back = std::make_shared<MemoryStream>(empty);
      sets[a].links[b] = std::make_unique<MemoryLink>(there, back);
      sets[b].links[a] = std::make_unique<MemoryLink>(back, there);
    }
  }
  return sets;
}

}  // namespace pushpull
