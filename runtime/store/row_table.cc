// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_table.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/store/row_layout.h"

namespace pushpull {
namespace {

// How many times within RowSpec::evict_after rows to evict are looked for.
constexpr uint64_t kEvictionsOfAnAge = 8;

template <typename Type>
std::span<std::byte> PutAll(std::span<const Type> from, std::span<std::byte> out) {
  const std::span<const std::byte> bytes = std::as_bytes(from);
  absl::c_copy(bytes, out.begin());
  return out.subspan(bytes.size());
}

template <typename Type>
std::vector<Type> TakeAll(size_t count, std::span<const std::byte>& from) {
  std::vector<Type> taken(count);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(taken));
  absl::c_copy(from.first(bytes.size()), bytes.begin());
  from = from.subspan(bytes.size());
  return taken;
}

size_t RowImageBytes(size_t dim, size_t state_floats) {
  return 2 * sizeof(uint64_t) + (dim + state_floats) * sizeof(float);
}

// The number of bytes of the rows that follow the header.
absl::StatusOr<uint64_t> BytesOfRows(std::span<const std::byte> header,
                                     size_t dim,
                                     size_t state_floats) {
  if (header.size() != kRowHeaderBytes)
    return absl::DataLossError(absl::StrCat("have a header of ", header.size(), " bytes"));
  const auto num_rows = LoadNumber<uint64_t>(header);
  const auto num_bytes = LoadNumber<uint64_t>(header.subspan(sizeof(uint64_t)));
  if (num_rows > RowsPerChunkMax(dim) || num_bytes != num_rows * RowImageBytes(dim, state_floats)) {
    return absl::DataLossError(
        absl::StrCat("are said to be ", num_rows, " of ", num_bytes, " bytes"));
  }
  return num_bytes;
}

}  // namespace

absl::StatusOr<RowsOfImage> ParseRowImage(std::span<const std::byte> header,
                                          std::span<const std::byte> rows,
                                          size_t dim,
                                          size_t state_floats) {
  PUSHPULL_ASSIGN_OR_RETURN(const uint64_t num_bytes, BytesOfRows(header, dim, state_floats));
  if (rows.size() != num_bytes) {
    return absl::DataLossError(absl::StrCat("have ", rows.size(), " bytes, expected ", num_bytes));
  }
  const auto num_rows = LoadNumber<uint64_t>(header);
  RowsOfImage parsed;
  parsed.keys = TakeAll<uint64_t>(num_rows, rows);
  const absl::Status ascend = ParseRowKeys(std::as_bytes(std::span(parsed.keys))).status();
  if (!ascend.ok()) return absl::DataLossError(ascend.message());
  parsed.touched = TakeAll<uint64_t>(num_rows, rows);
  parsed.values = TakeAll<float>(num_rows * dim, rows);
  parsed.states = TakeAll<float>(num_rows * state_floats, rows);
  return parsed;
}

RowTable::RowTable(const TensorSpec& tensor, uint64_t index, uint64_t num_chunks)
    : tensor_(tensor),
      index_(index),
      num_chunks_(num_chunks),
      dim_(RowDim(tensor)),
      state_floats_(dim_ * StateFloatsPerValue(tensor.optimizer)) {}

absl::Status RowTable::CheckKeys(std::span<const uint64_t> keys) const {
  PUSHPULL_RETURN_IF_ERROR(keys.size() > RowsPerChunkMax(dim_) ? CheckRoomFor(keys.size())
                                                               : absl::OkStatus());
  const auto elsewhere =
      absl::c_find_if(keys, [&](uint64_t key) { return ChunkOfRow(key, num_chunks_) != index_; });
  if (elsewhere == keys.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 tensor_.name,
                                                 "\": row ",
                                                 *elsewhere,
                                                 " is of chunk ",
                                                 ChunkOfRow(*elsewhere, num_chunks_),
                                                 ", not ",
                                                 index_));
}

absl::Status RowTable::CheckRoomFor(size_t num_rows) const {
  if (num_rows <= RowsPerChunkMax(dim_)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("tensor \"",
                                                   tensor_.name,
                                                   "\": one of its ",
                                                   num_chunks_,
                                                   " chunks would have ",
                                                   num_rows,
                                                   " rows, the limit is ",
                                                   RowsPerChunkMax(dim_),
                                                   ": register it with more rows than ",
                                                   tensor_.dims.front(),
                                                   ", or with evict_after"));
}

absl::Status RowTable::Install(std::span<const std::byte> rows) {
  PUSHPULL_ASSIGN_OR_RETURN(const SparseRows parsed, ParseSparseRows(rows, dim_));
  PUSHPULL_RETURN_IF_ERROR(CheckKeys(parsed.keys));
  Clear();
  is_installed_ = true;
  for (size_t i = 0; i < parsed.keys.size(); ++i)
    absl::c_copy(parsed.values.subspan(i * dim_, dim_), ValueOf(Add(parsed.keys[i])).begin());
  return absl::OkStatus();
}

void RowTable::Gather(std::span<const uint64_t> keys, std::span<float> out) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::span<float> row = out.subspan(i * dim_, dim_);
    const auto slot = slots_.find(keys[i]);
    if (slot == slots_.end()) {
      InitializeRow(*tensor_.rows, keys[i], row);
    } else {
      absl::c_copy(std::span(values_).subspan(slot->second * dim_, dim_), row.begin());
    }
  }
}

absl::Status RowTable::Apply(std::span<const std::byte> gradient,
                             const StepInput& input,
                             Step next) {
  PUSHPULL_ASSIGN_OR_RETURN(const SparseRows rows, ParseSparseRows(gradient, dim_));
  const auto missing =
      absl::c_count_if(rows.keys, [&](uint64_t key) { return !slots_.contains(key); });
  PUSHPULL_RETURN_IF_ERROR(CheckRoomFor(num_rows() + static_cast<size_t>(missing)));
  PUSHPULL_RETURN_IF_ERROR(CheckKeys(rows.keys));
  const OptimizerSpec optimizer = OptimizerOfRows(tensor_.optimizer, input.step);
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const auto known = slots_.find(rows.keys[i]);
    size_t slot = known == slots_.end() ? num_rows() : known->second;
    if (known == slots_.end()) {
      slot = Add(rows.keys[i]);
      InitializeRow(*tensor_.rows, rows.keys[i], ValueOf(slot));
    }
    touched_[slot] = next.value();
    const std::span<float> value = ValueOf(slot);
    ApplyOptimizer(
        optimizer, input, rows.values.subspan(i * dim_, dim_), value, value, StateOf(slot));
  }
  return absl::OkStatus();
}

// Depends only on the version, so that all members evict the same rows in the same entry.
void RowTable::Evict(Step version) {
  const uint64_t age = tensor_.rows->evict_after;
  const uint64_t period = std::max<uint64_t>(1, age / kEvictionsOfAnAge);
  if (age == 0 || version.value() % period != 0) return;
  for (size_t slot = 0; slot < num_rows();) {
    if (touched_[slot] < version.value() && version.value() - touched_[slot] >= age) {
      Remove(slot);  // the last row moves to this slot
    } else {
      ++slot;
    }
  }
}

size_t RowTable::Add(uint64_t key) {
  const size_t slot = keys_.size();
  slots_.emplace(key, slot);
  keys_.push_back(key);
  touched_.push_back(0);
  values_.resize(values_.size() + dim_);
  states_.resize(states_.size() + state_floats_);
  return slot;
}

void RowTable::Remove(size_t slot) {
  const size_t last = keys_.size() - 1;
  slots_.erase(keys_[slot]);
  if (slot != last) {
    slots_[keys_[last]] = slot;
    keys_[slot] = keys_[last];
    touched_[slot] = touched_[last];
    absl::c_copy(ValueOf(last), ValueOf(slot).begin());
    absl::c_copy(StateOf(last), StateOf(slot).begin());
  }
  keys_.pop_back();
  touched_.pop_back();
  values_.resize(values_.size() - dim_);
  states_.resize(states_.size() - state_floats_);
}

// ---- images ----

absl::StatusOr<RowImage> RowTable::Image() const {
  RowImage image;
  PUSHPULL_ASSIGN_OR_RETURN(image.header, HostBuffer::Zeroed(kRowHeaderBytes));
  const uint64_t num_bytes = num_rows() * RowImageBytes(dim_, state_floats_);
  StoreNumber<uint64_t>(num_rows(), image.header.bytes());
  StoreNumber<uint64_t>(num_bytes, image.header.bytes().subspan(sizeof(uint64_t)));
  PUSHPULL_ASSIGN_OR_RETURN(image.rows, HostBuffer::Uninitialized(num_bytes));
  std::vector<size_t> order(num_rows());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::c_sort(order, [&](size_t a, size_t b) { return keys_[a] < keys_[b]; });
  std::span<std::byte> out = image.rows.bytes();
  for (const size_t slot : order) out = PutAll(std::span(&keys_[slot], 1), out);
  for (const size_t slot : order) out = PutAll(std::span(&touched_[slot], 1), out);
  for (const size_t slot : order) out = PutAll(std::span(values_).subspan(slot * dim_, dim_), out);
  for (const size_t slot : order)
    out = PutAll(std::span(states_).subspan(slot * state_floats_, state_floats_), out);
  return image;
}

absl::StatusOr<uint64_t> RowTable::ImageBytes(std::span<const std::byte> header) const {
  absl::StatusOr<uint64_t> bytes = BytesOfRows(header, dim_, state_floats_);
  return bytes.ok() ? bytes : Damaged(bytes.status());
}

absl::Status RowTable::Restore(std::span<const std::byte> header, std::span<const std::byte> rows) {
  absl::StatusOr<RowsOfImage> parsed = ParseRowImage(header, rows, dim_, state_floats_);
  if (!parsed.ok()) return Damaged(parsed.status());
  const absl::Status are_here = CheckKeys(parsed->keys);
  if (!are_here.ok()) return Damaged(are_here);
  Clear();
  is_installed_ = true;
  keys_ = std::move(parsed->keys);
  for (size_t slot = 0; slot < keys_.size(); ++slot) slots_.emplace(keys_[slot], slot);
  touched_ = std::move(parsed->touched);
  values_ = std::move(parsed->values);
  states_ = std::move(parsed->states);
  return absl::OkStatus();
}

absl::Status RowTable::Damaged(const absl::Status& why) const {
  return absl::DataLossError(absl::StrCat(
      "tensor \"", tensor_.name, "\": the rows of chunk ", index_, ": ", why.message()));
}

void RowTable::Clear() {
  is_installed_ = false;
  slots_.clear();
  keys_.clear();
  touched_.clear();
  values_.clear();
  states_.clear();
}

}  // namespace pushpull
