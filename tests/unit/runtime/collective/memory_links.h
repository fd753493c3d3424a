// SPDX-License-Identifier: Apache-2.0
//
// Links between ranks that live in one test: bytes in memory, with room for a few only, so that
// ranks must not wait for room and for bytes in a circle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/collective/peer_link.h"

namespace pushpull {

// One direction.
struct MemoryStream {
  size_t capacity = 0;
  std::vector<std::byte> bytes = {};
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
  bool has_unsent() const override { return false; }

  absl::StatusOr<std::span<const std::byte>> Peek(size_t least, size_t most) override {
    if (in_->bytes.size() >= least)
      return std::span<const std::byte>(in_->bytes).first(std::min(most, in_->bytes.size()));
    if (in_->is_closed) return absl::UnavailableError("has closed the link");
    return std::span<const std::byte>();
  }
  void Consume(size_t num_bytes) override {
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<ptrdiff_t>(num_bytes));
  }
  absl::StatusOr<size_t> Receive(std::span<std::byte> into) override {
    if (in_->bytes.empty() && in_->is_closed) return absl::UnavailableError("has closed the link");
    const size_t count = std::min(into.size(), in_->bytes.size());
    std::copy_n(in_->bytes.begin(), count, into.begin());
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
  const std::shared_ptr<MemoryStream> out_;
  const std::shared_ptr<MemoryStream> in_;
};

// Each rank to each other one, with room for `capacity` bytes a direction.
inline std::vector<LinkSet> MakeMemoryMesh(size_t ranks, size_t capacity) {
  std::vector<LinkSet> sets(ranks);
  for (LinkSet& set : sets) set.links.resize(ranks);
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = a + 1; b < ranks; ++b) {
      auto there = std::make_shared<MemoryStream>(MemoryStream{.capacity = capacity});
      auto back = std::make_shared<MemoryStream>(MemoryStream{.capacity = capacity});
      sets[a].links[b] = std::make_unique<MemoryLink>(there, back);
      sets[b].links[a] = std::make_unique<MemoryLink>(back, there);
    }
  }
  return sets;
}

}  // namespace pushpull
