// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/tensor_catalog.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/placement.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/reduction.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

absl::StatusOr<uint64_t> BytesOf(const TensorSpec& spec) {
  PUSHPULL_RETURN_IF_ERROR(CheckRows(spec));
  const absl::StatusOr<uint64_t> bytes = PlacedBytes(spec);
  if (!bytes.ok() || *bytes == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor \"%s\": shape %s has no values or too many", spec.name, DimsToString(spec.dims)));
  }
  return bytes;
}

std::string Describe(const RowSpec& rows) {
  const absl::string_view init = rows.init == RowInit::kZeros     ? "zeros"
                                 : rows.init == RowInit::kUniform ? "uniform"
                                                                  : "normal";
  return absl::StrCat("(init=",
                      init,
                      ", scale=",
                      rows.scale,
                      ", seed=",
                      rows.seed,
                      ", evict_after=",
                      rows.evict_after,
                      ")");
}

// What differs between two registrations of one tensor, as "shape [3] and [4]"; empty if nothing
// does.
std::string Difference(const TensorSpec& ours, const TensorSpec& theirs) {
  if (ours.dims != theirs.dims)
    return absl::StrCat("shape ", DimsToString(theirs.dims), " and ", DimsToString(ours.dims));
  if (ours.dtype != theirs.dtype)
    return absl::StrCat("dtype ", ToString(theirs.dtype), " and ", ToString(ours.dtype));
  if (ours.reduction != theirs.reduction)
    return absl::StrCat(
        "reduction ", ToString(theirs.reduction), " and ", ToString(ours.reduction));
  if (ours.optimizer != theirs.optimizer) {
    return absl::StrCat(
        "optimizer ", ToString(theirs.optimizer), " and ", ToString(ours.optimizer));
  }
  if (ours.codec != theirs.codec)
    return absl::StrCat("codec ", ToString(theirs.codec), " and ", ToString(ours.codec));
  if (ours.clip_norm != theirs.clip_norm)
    return absl::StrCat("clip_norm ", theirs.clip_norm, " and ", ours.clip_norm);
  if (ours.rows.has_value() != theirs.rows.has_value())
    return absl::StrCat(
        theirs.rows ? "row-sparse" : "dense", " and ", ours.rows ? "row-sparse" : "dense");
  if (ours.rows != theirs.rows)
    return absl::StrCat("rows ", Describe(*theirs.rows), " and ", Describe(*ours.rows));
  return "";
}

absl::Status RegisteredByOne(const std::string& tensor, WorkerId has, WorkerId lacks) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "tensor \"%s\": registered by %s but not by %s: all workers must register the "
      "same tensors",
      tensor,
      ToString(has),
      ToString(lacks)));
}

}  // namespace

absl::StatusOr<TensorCatalog> TensorCatalog::FromPlaced(const std::vector<PlacedTensor>& tensors) {
  TensorCatalog catalog;
  if (tensors.empty()) return catalog;
  std::vector<uint64_t> bytes;
  std::vector<ShardId> shards;
  for (const PlacedTensor& tensor : tensors) {
    PUSHPULL_ASSIGN_OR_RETURN(bytes.emplace_back(), BytesOf(tensor.spec));
    shards.insert(shards.end(), tensor.shards.begin(), tensor.shards.end());
    catalog.index_by_name_.emplace(tensor.spec.name, catalog.tensors_.size());
    catalog.tensors_.push_back(tensor);
  }
  PUSHPULL_ASSIGN_OR_RETURN(const ChunkRange batch, catalog.chunks_.Append(bytes));
  const std::vector<uint64_t> chunk_bytes = catalog.chunks_.ChunkBytes(batch);
  if (chunk_bytes.size() != shards.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensors of ", chunk_bytes.size(), " chunks are placed as ", shards.size()));
  }
  for (size_t i = 0; i < shards.size(); ++i)
    catalog.shard_bytes_[shards[i].value()] += chunk_bytes[i];
  return catalog;
}

absl::Status TensorCatalog::Register(WorkerId worker, std::span<const TensorSpec> tensors) {
  if (tensors_.empty()) {
    PUSHPULL_RETURN_IF_ERROR(Place(tensors));
    first_worker_ = worker;
    return absl::OkStatus();
  }
  absl::flat_hash_set<absl::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    names.insert(tensor.name);
    const auto it = index_by_name_.find(tensor.name);
    if (it == index_by_name_.end()) return RegisteredByOne(tensor.name, worker, first_worker_);
    const std::string difference = Difference(tensors_[it->second].spec, tensor);
    if (!difference.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat("tensor \"%s\": %s and %s differ in it: %s",
                                                        tensor.name,
                                                        ToString(worker),
                                                        ToString(first_worker_),
                                                        difference));
    }
  }
  for (const PlacedTensor& ours : tensors_) {
    if (!names.contains(ours.spec.name))
      return RegisteredByOne(ours.spec.name, first_worker_, worker);
  }
  return absl::OkStatus();
}

std::vector<TensorSpec> TensorCatalog::Specs() const {
  std::vector<TensorSpec> specs;
  for (const PlacedTensor& tensor : tensors_) specs.push_back(tensor.spec);
  return specs;
}

absl::Status TensorCatalog::Place(std::span<const TensorSpec> tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("the list of tensors is empty");
  std::vector<uint64_t> bytes;
  absl::flat_hash_map<std::string, size_t> index_by_name;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.empty()) return absl::InvalidArgumentError("a tensor has no name");
    if (!index_by_name.emplace(tensor.name, bytes.size()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name, "\": registered twice"));
    }
    PUSHPULL_RETURN_IF_ERROR(Validate(tensor.optimizer));
    PUSHPULL_ASSIGN_OR_RETURN(bytes.emplace_back(), BytesOf(tensor));
  }
  ChunkTable chunks = chunks_;
  PUSHPULL_ASSIGN_OR_RETURN(const ChunkRange batch, chunks.Append(bytes));
  const std::vector<uint64_t> chunk_bytes = chunks.ChunkBytes(batch);
  PUSHPULL_ASSIGN_OR_RETURN(
      const std::vector<ShardId> shards,
      AssignChunks(chunk_bytes,
                   {.primaries = primaries_, .shard_bytes = shard_bytes_, .weights = weights_}));

  chunks_ = std::move(chunks);
  index_by_name_ = std::move(index_by_name);
  for (size_t i = 0; i < shards.size(); ++i) shard_bytes_[shards[i].value()] += chunk_bytes[i];
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const ChunkRange range = chunks_.FindTensor(id)->chunks;
    const auto begin = shards.begin() + static_cast<ptrdiff_t>(range.first.value());
    tensors_.push_back({.id = id,
                        .spec = tensors[i],
                        .first_chunk = range.first,
                        .shards = {begin, begin + static_cast<ptrdiff_t>(range.num_chunks)}});
  }
  return absl::OkStatus();
}

}  // namespace pushpull
