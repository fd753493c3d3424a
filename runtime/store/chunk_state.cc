// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/chunk_state.h"

#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {

absl::Status ChunkState::Install(HostBuffer value, HostBuffer optimizer_state, uint64_t updates) {
  if (is_initialized()) return absl::OkStatus();
  if (optimizer_state.num_bytes() == 0) {
    PUSHPULL_ASSIGN_OR_RETURN(optimizer_state, HostBuffer::Zeroed(state_bytes()));
  }
  return Restore(Step{0}, updates, std::move(value), std::move(optimizer_state));
}

absl::Status ChunkState::InstallRows(std::span<const std::byte> rows) {
  return is_initialized() ? absl::OkStatus() : rows_->Install(rows);
}

absl::Status ChunkState::ApplyRows(std::span<const std::byte> gradient,
                                   double gradient_scale,
                                   double learning_rate) {
  PUSHPULL_CHECK(is_initialized());
  PUSHPULL_RETURN_IF_ERROR(
      rows_->Apply(gradient, NextInput(gradient_scale, learning_rate), Step{version_.value() + 1}));
  ++updates_;
  BeginNextVersion();
  return absl::OkStatus();
}

StepInput ChunkState::NextInput(double gradient_scale, double learning_rate) const {
  return {.learning_rate = learning_rate > 0 ? learning_rate : optimizer_.learning_rate,
          .step = updates_ + 1,
          .gradient_scale = gradient_scale};
}

void ChunkState::BeginNextVersion() {
  version_ = Step{version_.value() + 1};
  if (rows_) rows_->Evict(version_);
}

absl::Status ChunkState::Skip(bool has_gradient) {
  PUSHPULL_CHECK(is_initialized());
  if (!has_gradient && !rows_ && optimizer_.kind == OptimizerKind::kSum) {
    // As in Apply: what somebody reads, or a checkpoint has captured, is not written.
    if (spares_ != nullptr || value_.use_count() > 1) {
      PUSHPULL_ASSIGN_OR_RETURN(HostBuffer fresh, Memory(num_bytes_));
      value_ = std::make_shared<HostBuffer>(std::move(fresh));
    }
    spares_ = nullptr;
    std::memset(value_->bytes().data(), 0, num_bytes_);
  }
  BeginNextVersion();
  return absl::OkStatus();
}

absl::Status ChunkState::Apply(std::span<const float> gradient,
                               double gradient_scale,
                               double learning_rate) {
  PUSHPULL_CHECK(is_initialized());
  std::shared_ptr<HostBuffer> next = value_;
  // Only this thread adds and drops owners of an uncaptured value, so a count of two (`next` and
  // value_) means that nobody reads it. Captured memory has owners on another thread: a low count
  // does not order that thread's reads before the writes here, so it is never written.
  const bool is_captured = spares_ != nullptr;
  if (is_captured || value_.use_count() > 2) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer fresh, Memory(num_bytes_));
    next = std::make_shared<HostBuffer>(std::move(fresh));
  }
  if ((is_captured || state_.use_count() > 1) && state_bytes() > 0) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer fresh, Memory(state_bytes()));
    std::memcpy(fresh.bytes().data(), state_->bytes().data(), state_bytes());
    state_ = std::make_shared<HostBuffer>(std::move(fresh));
  }
  spares_ = nullptr;
  const StepInput input = NextInput(gradient_scale, learning_rate);
  ++updates_;
  ApplyOptimizer(optimizer_, input, gradient, value_->floats(), next->floats(), state_->floats());
  value_ = std::move(next);
  BeginNextVersion();
  return absl::OkStatus();
}

HostBuffer ChunkState::TakeSum(HostBuffer sum) {
  PUSHPULL_CHECK(is_initialized() && is_gradient(1) && sum.num_bytes() == num_bytes_);
  auto next = std::make_shared<HostBuffer>(std::move(sum));
  const bool is_captured = std::exchange(spares_, nullptr) != nullptr;
  HostBuffer before;
  if (!is_captured && value_.use_count() == 1) before = std::move(*value_);
  ++updates_;
  value_ = std::move(next);
  BeginNextVersion();
  return before;
}

void ChunkState::Replace(HostBuffer value) {
  PUSHPULL_CHECK(is_initialized() && value.num_bytes() == num_bytes_);
  value_ = std::make_shared<HostBuffer>(std::move(value));
  BeginNextVersion();
}

absl::StatusOr<HostBuffer> ChunkState::Memory(uint64_t num_bytes) const {
  return spares_ == nullptr ? HostBuffer::Uninitialized(num_bytes) : spares_->Take(num_bytes);
}

uint64_t OwnedBytes(const ChunkState& state) {
  return state.rows() == nullptr ? state.num_bytes() : state.rows()->num_bytes();
}

absl::StatusOr<ChunkImage> ChunkState::Image() const {
  if (!rows_ || !is_initialized()) return ChunkImage{value_, state_};
  PUSHPULL_ASSIGN_OR_RETURN(RowImage image, rows_->Image());
  return ChunkImage{std::make_shared<const HostBuffer>(std::move(image.header)),
                    std::make_shared<const HostBuffer>(std::move(image.rows))};
}

absl::Status ChunkState::Restore(Step version,
                                 uint64_t updates,
                                 HostBuffer value,
                                 HostBuffer optimizer_state) {
  if (rows_) PUSHPULL_RETURN_IF_ERROR(rows_->Restore(value.bytes(), optimizer_state.bytes()));
  version_ = version;
  updates_ = updates;
  if (rows_) return absl::OkStatus();
  PUSHPULL_CHECK(value.num_bytes() == num_bytes_ && optimizer_state.num_bytes() == state_bytes());
  value_ = std::make_shared<HostBuffer>(std::move(value));
  state_ = std::make_shared<HostBuffer>(std::move(optimizer_state));
  return absl::OkStatus();
}

void ChunkState::Clear() {
  if (rows_) rows_->Clear();
  version_ = Step{};
  updates_ = 0;
  value_.reset();
  state_.reset();
}

void ChunkState::AdvanceTo(Step version) {
  PUSHPULL_CHECK(version > version_);
  version_ = version;
}

}  // namespace pushpull
