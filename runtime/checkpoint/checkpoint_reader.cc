// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/stored_chunks.h"
#include "runtime/checkpoint/tensor_roles.h"
#include "runtime/consistency/sample_leases.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/master_values.h"

namespace pushpull {
namespace {

constexpr uint64_t kChunkFloats = kChunkBytes / sizeof(float);

std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// The newest complete one of those in `list`, which are of one job. That in the folder furthest
// down counts: early versions saved further up.
absl::StatusOr<std::string> Newest(const std::string& path,
                                   const std::vector<ListedCheckpoint>& list) {
  std::string newest;
  absl::Status problem;
  for (const ListedCheckpoint& listed : list) {
    if (FolderOf(listed.folder) == FolderOf(newest)) continue;
    if (absl::IsUnimplemented(listed.status)) return listed.status;
    if (!absl::IsNotFound(listed.status)) problem.Update(listed.status);
    if (listed.status.ok()) newest = listed.folder;
  }
  if (!newest.empty()) return newest;
  PUSHPULL_RETURN_IF_ERROR(problem);
  return absl::NotFoundError(list.empty()
                                 ? absl::StrCat(path, ": has no checkpoint")
                                 : absl::StrCat(path,
                                                ": has no complete checkpoint, but ",
                                                std::string(list.front().status.message())));
}

absl::StatusOr<std::string> FindFolder(FileSystem& files, const std::string& path) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, files.ListFolder(path));
  const bool is_checkpoint =
      absl::c_any_of(entries, [](const FolderEntry& entry) { return entry.name == kManifestName; });
  if (is_checkpoint) return path;
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> list,
                            ListCheckpointsBelow(files, path));
  std::set<std::string> jobs;
  for (const ListedCheckpoint& listed : list)
    if (listed.owner) jobs.insert(ToString(*listed.owner));
  if (jobs.size() <= 1) return Newest(path, list);
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": has checkpoints of several jobs, ",
                   Printable(absl::StrJoin(jobs, ", ")),
                   "; give the folder of one of them, or of a checkpoint"));
}

// A tensor with its place in the manifest.
struct FoundTensor {
  const TensorSpec* spec = nullptr;
  ChunkRange chunks;
  uint64_t num_values = 0;  // of a dense one

  // Of its chunk `index`.
  uint64_t ValuesIn(uint64_t index) const {
    return std::min(kChunkFloats, num_values - index * kChunkFloats);
  }
};

class StoredCheckpoint final : public Checkpoint {
 public:
  StoredCheckpoint(FileSystem& files, std::string folder, CheckpointManifest manifest)
      : manifest_(std::move(manifest)),
        chunks_(files, folder, manifest_),
        tensors_(WithRoles(manifest_.tensors)) {
    info_ = {.folder = std::move(folder),
             .job_namespace = manifest_.owner.job_namespace,
             .job = manifest_.owner.job,
             .mode = manifest_.mode,
             .step = StepAfter(manifest_),
             .written_at = manifest_.written_at};
  }

  absl::Status Begin() {
    PUSHPULL_ASSIGN_OR_RETURN(const ChunkTable table, MakeChunkTable(manifest_.tensors));
    for (uint32_t i = 0; i < manifest_.tensors.size(); ++i) {
      const TensorSpec& spec = manifest_.tensors[i];
      const TensorLayout layout = *table.FindTensor(TensorId{i});
      by_name_[spec.name] = {
          .spec = &spec, .chunks = layout.chunks, .num_values = layout.bytes / sizeof(float)};
    }
    const auto samples = by_name_.find(kSampleQueueTensor);
    if (samples == by_name_.end()) return absl::OkStatus();
    std::vector<float> values(samples->second.num_values);
    PUSHPULL_RETURN_IF_ERROR(Read(kSampleQueueTensor, 0, values));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    if (SampleLeases::AreIn(bytes)) {
      PUSHPULL_ASSIGN_OR_RETURN(const SampleLeases leases, SampleLeases::Decode(bytes));
      const StepSamples now = leases.ShareOf(WorkerId{0}, Step{}, 0);
      position_ = {.source = leases.source(), .epoch = now.epoch, .position = now.position};
      return absl::OkStatus();
    }
    PUSHPULL_ASSIGN_OR_RETURN(const SampleQueue queue, SampleQueue::Decode(bytes));
    const StepSamples now = queue.ShareOf(WorkerId{0}, queue.step());
    position_ = {.source = queue.source(), .epoch = now.epoch, .position = now.position};
    return absl::OkStatus();
  }

  const CheckpointInfo& info() const override { return info_; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  const std::optional<DataPosition>& position() const override { return position_; }

  absl::Status Read(absl::string_view name, uint64_t first, TensorValues out) const override {
    PUSHPULL_ASSIGN_OR_RETURN(const FoundTensor tensor, FindDense(name));
    const DType dtype = out.dtype();
    if (dtype != DType::kFloat32 && dtype != tensor.spec->dtype) {
      return Refuse(name,
                    absl::StrCat("is ",
                                 ToString(tensor.spec->dtype),
                                 "; read as that or as float32, not as ",
                                 ToString(dtype)));
    }
    const size_t element = DTypeBytes(dtype);
    const uint64_t count = out.bytes().size() / element;
    PUSHPULL_RETURN_IF_ERROR(CheckRange(tensor, first, count));
    const bool narrows = tensor.spec->dtype != DType::kFloat32;
    return ForEachChunk(tensor, first, count, [&](const Piece& piece) -> absl::Status {
      const std::span<std::byte> target =
          out.bytes().subspan(piece.at * element, piece.count * element);
      const StoredChunk& stored = ChunkOf(tensor, piece.index);
      if (!narrows && piece.count == tensor.ValuesIn(piece.index))
        return chunks_.ReadValue(stored, target).status();
      PUSHPULL_ASSIGN_OR_RETURN(
          HostBuffer whole,
          HostBuffer::Uninitialized(tensor.ValuesIn(piece.index) * sizeof(float)));
      PUSHPULL_RETURN_IF_ERROR(chunks_.ReadValue(stored, whole.bytes()).status());
      const std::span<const float> values = whole.floats().subspan(piece.first, piece.count);
      if (dtype != DType::kFloat32) {
        Narrow(dtype, values, target);
      } else {
        std::memcpy(target.data(), values.data(), values.size_bytes());
      }
      return absl::OkStatus();
    });
  }

  absl::Status ReadOptimizerState(absl::string_view name,
                                  size_t row,
                                  uint64_t first,
                                  std::span<float> out) const override {
    PUSHPULL_ASSIGN_OR_RETURN(const FoundTensor tensor, FindDense(name));
    const size_t rows = StateFloatsPerValue(tensor.spec->optimizer);
    if (row >= rows) {
      return Refuse(name,
                    absl::StrCat("its optimizer, ",
                                 ToString(tensor.spec->optimizer.kind),
                                 ", keeps ",
                                 rows,
                                 " values for each; there is no number ",
                                 row));
    }
    PUSHPULL_RETURN_IF_ERROR(CheckRange(tensor, first, out.size()));
    return ForEachChunk(tensor, first, out.size(), [&](const Piece& piece) -> absl::Status {
      const uint64_t count = tensor.ValuesIn(piece.index);
      PUSHPULL_ASSIGN_OR_RETURN(HostBuffer state,
                                HostBuffer::Uninitialized(rows * count * sizeof(float)));
      PUSHPULL_RETURN_IF_ERROR(
          chunks_.ReadOptimizerState(ChunkOf(tensor, piece.index), state.bytes()).status());
      absl::c_copy(state.floats().subspan(row * count + piece.first, piece.count),
                   out.begin() + static_cast<ptrdiff_t>(piece.at));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<uint64_t> Updates(absl::string_view name) const override {
    PUSHPULL_ASSIGN_OR_RETURN(const FoundTensor tensor, Find(name));
    if (tensor.chunks.num_chunks == 0) return 0;
    PUSHPULL_ASSIGN_OR_RETURN(const StoredRecord stored, chunks_.ReadHeader(ChunkOf(tensor, 0)));
    return stored.record.updates;
  }

  absl::StatusOr<CheckpointRows> ReadRows(absl::string_view name) const override {
    PUSHPULL_ASSIGN_OR_RETURN(const FoundTensor tensor, Find(name));
    if (!tensor.spec->rows) return Refuse(name, "is not row-sparse");
    std::vector<RowsOfImage> images;
    for (uint64_t i = 0; i < tensor.chunks.num_chunks; ++i) {
      PUSHPULL_ASSIGN_OR_RETURN(images.emplace_back(),
                                chunks_.ReadRows(ChunkOf(tensor, i), *tensor.spec));
    }
    CheckpointRows rows = Merge(images, *tensor.spec);
    PUSHPULL_ASSIGN_OR_RETURN(rows.updates, Updates(name));
    return rows;
  }

 private:
  // Elements [first, first + count) of chunk `index`, which are [at, at + count) of those asked
  // for.
  struct Piece {
    uint64_t index = 0;
    uint64_t first = 0;
    uint64_t at = 0;
    uint64_t count = 0;
  };

  static absl::Status Refuse(absl::string_view name, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", why));
  }

  absl::StatusOr<FoundTensor> Find(absl::string_view name) const {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    return absl::NotFoundError(
        absl::StrCat("tensor \"", name, "\" is not in checkpoint ", info_.folder));
  }

  absl::StatusOr<FoundTensor> FindDense(absl::string_view name) const {
    PUSHPULL_ASSIGN_OR_RETURN(const FoundTensor tensor, Find(name));
    if (tensor.spec->rows) return Refuse(name, "is row-sparse; read its rows");
    return tensor;
  }

  static absl::Status CheckRange(const FoundTensor& tensor, uint64_t first, uint64_t count) {
    if (first <= tensor.num_values && count <= tensor.num_values - first) return absl::OkStatus();
    return Refuse(
        tensor.spec->name,
        absl::StrCat(
            "has ", tensor.num_values, " elements, asked for ", count, " from ", first, " on"));
  }

  const StoredChunk& ChunkOf(const FoundTensor& tensor, uint64_t index) const {
    return manifest_.chunks[tensor.chunks.first.value() + index];
  }

  template <typename Visit>
  static absl::Status ForEachChunk(const FoundTensor& tensor,
                                   uint64_t first,
                                   uint64_t count,
                                   const Visit& visit) {
    for (uint64_t at = 0; at < count;) {
      Piece piece{.index = (first + at) / kChunkFloats, .first = (first + at) % kChunkFloats};
      piece.at = at;
      piece.count = std::min(tensor.ValuesIn(piece.index) - piece.first, count - at);
      PUSHPULL_RETURN_IF_ERROR(visit(piece));
      at += piece.count;
    }
    return absl::OkStatus();
  }

  // Rows are in chunks by a hash of their keys.
  static CheckpointRows Merge(const std::vector<RowsOfImage>& images, const TensorSpec& spec) {
    const size_t dim = RowDim(spec);
    const size_t state_floats = dim * StateFloatsPerValue(spec.optimizer);
    std::vector<std::pair<uint64_t, std::pair<const RowsOfImage*, size_t>>> order;
    for (const RowsOfImage& image : images) {
      for (size_t i = 0; i < image.keys.size(); ++i) order.push_back({image.keys[i], {&image, i}});
    }
    absl::c_sort(order, [](const auto& a, const auto& b) { return a.first < b.first; });
    CheckpointRows rows;
    for (const auto& [key, place] : order) {
      const auto& [image, i] = place;
      const auto append = [i = i](const std::vector<float>& from, size_t size, auto& to) {
        const std::span<const float> part = std::span(from).subspan(i * size, size);
        to.insert(to.end(), part.begin(), part.end());
      };
      rows.keys.push_back(key);
      append(image->values, dim, rows.values);
      append(image->states, state_floats, rows.states);
    }
    return rows;
  }

  const CheckpointManifest manifest_;
  const StoredChunks chunks_;
  const std::vector<CheckpointTensor> tensors_;
  CheckpointInfo info_;
  absl::flat_hash_map<std::string, FoundTensor> by_name_;
  std::optional<DataPosition> position_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(FileSystem& files, std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  PUSHPULL_ASSIGN_OR_RETURN(std::string folder, FindFolder(files, path));
  PUSHPULL_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(files, folder));
  auto checkpoint =
      std::make_unique<StoredCheckpoint>(files, std::move(folder), std::move(manifest));
  PUSHPULL_RETURN_IF_ERROR(checkpoint->Begin());
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  static PosixFileSystem files;  // stateless
  return OpenCheckpoint(files, path);
}

}  // namespace pushpull
