// SPDX-License-Identifier: Apache-2.0
//
// The rules of a manifest; manifest_bytes.cc converts it from and to bytes.
#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/check.h"
#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/optim/optimizer.h"
#include "runtime/store/row_layout.h"
#include "runtime/store/row_table.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what));
}

// "chunk 7 (tensor w, index 3)"
std::string DescribeChunk(const CheckpointManifest& manifest, const ChunkTable& table, ChunkId id) {
  const std::optional<ChunkLayout> layout = table.FindChunk(id);
  if (!layout) return absl::StrCat("chunk ", id.value(), " (of no tensor)");
  const std::string& tensor = manifest.tensors[layout->tensor.value()].name;
  return absl::StrFormat("chunk %d (tensor %s, index %d)", id.value(), tensor, layout->index);
}

absl::Status CheckTensors(std::span<const TensorSpec> tensors) {
  absl::flat_hash_set<absl::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.empty()) return Wrong("a tensor has no name");
    if (!names.insert(tensor.name).second)
      return Wrong(absl::StrCat("two tensors are named ", tensor.name));
    if (!IsKnown(tensor.dtype) || !IsKnown(tensor.reduction))
      return Wrong(absl::StrCat("tensor ", tensor.name, ": dtype or reduction is unknown"));
    const absl::Status optimizer = Validate(tensor.optimizer);
    if (!optimizer.ok())
      return Wrong(absl::StrCat("tensor ", tensor.name, ": optimizer: ", optimizer.message()));
  }
  return absl::OkStatus();
}

// A name read from a file must not lead out of the folder.
bool IsPlainFileName(const std::string& name) {
  const bool has_odd =
      absl::c_any_of(name, [](char c) { return c == '/' || c < ' ' || c == '\x7f'; });
  return !name.empty() && name.size() <= 255 && name.front() != '.' && !has_odd;
}

absl::Status CheckFileList(std::span<const CheckpointFile> files) {
  absl::flat_hash_set<absl::string_view> names;
  for (const CheckpointFile& file : files) {
    if (!IsPlainFileName(file.name)) return Wrong("a file's name is no plain name");
    if (!names.insert(file.name).second)
      return Wrong(absl::StrCat("two files are named ", file.name));
    if (file.bytes < kFileHeaderBytes)
      return Wrong(absl::StrCat("file ", file.name, " has ", file.bytes, " bytes only"));
  }
  return absl::OkStatus();
}

absl::Status CheckChunk(const CheckpointManifest& manifest,
                        const ChunkTable& table,
                        const StoredChunk& chunk) {
  const ChunkPlace& place = chunk.place;
  const auto wrong = [&](absl::string_view what) {
    return Wrong(absl::StrCat(DescribeChunk(manifest, table, place.chunk), ": ", what));
  };
  if (chunk.file >= manifest.files.size())
    return wrong(absl::StrCat("is in file ", chunk.file, " of ", manifest.files.size()));
  const CheckpointFile& file = manifest.files[chunk.file];
  // Checked in this order, nothing can overflow.
  if (place.offset < kFileHeaderBytes || place.offset > file.bytes ||
      place.bytes > file.bytes - place.offset) {
    return wrong(absl::StrFormat("offset %d and %d bytes are not inside of file %s of %d bytes",
                                 place.offset,
                                 place.bytes,
                                 file.name,
                                 file.bytes));
  }
  const ChunkLayout layout = *table.FindChunk(place.chunk);
  const TensorSpec& tensor = manifest.tensors[layout.tensor.value()];
  const uint64_t least =
      kRecordHeaderBytes +
      (tensor.rows ? kRowHeaderBytes : layout.bytes * (1 + StateFloatsPerValue(tensor.optimizer)));
  if (place.bytes < least || place.offset % kRecordAlignment != 0)
    return wrong("its record is too short, or not where a record can start");
  if (manifest.versions == ChunkVersions::kOfOneStep && place.version != manifest.step) {
    return wrong(absl::StrFormat("has version %d, the checkpoint is of step %d",
                                 place.version.value(),
                                 manifest.step.value()));
  }
  return absl::OkStatus();
}

// Whether `pushpull checkpoint` can print it as it is.
bool IsPlainText(const std::string& text) {
  return Printable(text, kTextBytesMax) == text;
}

bool IsPlainName(const std::string& text) {
  return !text.empty() && IsPlainText(text);
}

absl::Status CheckTexts(const CheckpointManifest& manifest) {
  if (!IsPlainName(manifest.owner.job) || !IsPlainName(manifest.mode))
    return Wrong("job and mode must have 1 to 1,024 printable bytes");
  if (!IsPlainText(manifest.owner.job_namespace))
    return Wrong("the namespace must have at most 1,024 bytes, all printable");
  absl::flat_hash_set<absl::string_view> names;
  for (const SystemSection& section : manifest.system) {
    if (!IsPlainName(section.name))
      return Wrong("the name of a system section must have 1 to 1,024 printable bytes");
    if (!names.insert(section.name).second)
      return Wrong(absl::StrCat("two system sections are named ", section.name));
  }
  return absl::OkStatus();
}

// With a different state, a restored optimizer would continue differently.
bool HaveSameState(const OptimizerSpec& a, const OptimizerSpec& b) {
  return a.kind == b.kind && StateFloatsPerValue(a) == StateFloatsPerValue(b);
}

absl::string_view DescribeRows(const TensorSpec& tensor) {
  return tensor.rows ? "row-sparse" : "dense";
}

using SpecsByName = absl::flat_hash_map<absl::string_view, const TensorSpec*>;
using RangesByName = absl::flat_hash_map<absl::string_view, ChunkRange>;

SpecsByName ByName(std::span<const TensorSpec> tensors) {
  SpecsByName specs;
  for (const TensorSpec& tensor : tensors) specs.emplace(tensor.name, &tensor);
  return specs;
}

RangesByName ChunksByName(std::span<const TensorSpec> tensors) {
  const absl::StatusOr<ChunkTable> table = MakeChunkTable(tensors);
  PUSHPULL_CHECK(table.ok());
  RangesByName ranges;
  for (uint32_t i = 0; i < tensors.size(); ++i)
    ranges.emplace(tensors[i].name, table->FindTensor(TensorId{i})->chunks);
  return ranges;
}

std::string Difference(const TensorSpec& tensor,
                       absl::string_view verb,
                       absl::string_view saved,
                       absl::string_view in_job) {
  return absl::StrFormat(
      "tensor %s: %s %s in the checkpoint, %s in the job", tensor.name, verb, saved, in_job);
}

void CompareValue(const TensorSpec& saved,
                  const TensorSpec& tensor,
                  std::vector<std::string>& differences) {
  const auto differs = [&](absl::string_view verb, const auto& in_saved, const auto& in_job) {
    differences.push_back(Difference(tensor, verb, in_saved, in_job));
  };
  if (saved.dims != tensor.dims)
    differs("has shape", DimsToString(saved.dims), DimsToString(tensor.dims));
  // A checkpoint has the master values, so a job may continue with tensors of another type.
  if (MasterOf(saved.dtype) != MasterOf(tensor.dtype))
    differs("is", ToString(saved.dtype), ToString(tensor.dtype));
  if (saved.rows.has_value() != tensor.rows.has_value())
    differs("is", DescribeRows(saved), DescribeRows(tensor));
}

}  // namespace

std::string ToString(const CheckpointOwner& owner) {
  return owner.job_namespace.empty() ? owner.job
                                     : absl::StrCat(owner.job_namespace, "/", owner.job);
}

bool IsSameJob(const CheckpointOwner& a, const CheckpointOwner& b) {
  const bool are_both_known = !a.job_namespace.empty() && !b.job_namespace.empty();
  return a.job == b.job && (!are_both_known || a.job_namespace == b.job_namespace);
}

Step StepAfter(const CheckpointManifest& manifest) {
  if (manifest.versions == ChunkVersions::kOfOneStep) return manifest.step;
  Step highest;
  for (const StoredChunk& chunk : manifest.chunks) highest = std::max(highest, chunk.place.version);
  return highest;
}

absl::StatusOr<ChunkTable> MakeChunkTable(std::span<const TensorSpec> tensors) {
  std::vector<uint64_t> bytes;
  bytes.reserve(tensors.size());
  for (const TensorSpec& tensor : tensors) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t tensor_bytes, PlacedBytes(tensor));
    bytes.push_back(tensor_bytes);
  }
  ChunkTable table;
  PUSHPULL_RETURN_IF_ERROR(table.Append(bytes).status());
  return table;
}

absl::Status AddFiles(std::span<const ChunkFileSummary> files, CheckpointManifest& manifest) {
  PUSHPULL_ASSIGN_OR_RETURN(const ChunkTable table, MakeChunkTable(manifest.tensors));
  manifest.files.clear();
  manifest.chunks.clear();
  absl::flat_hash_map<ChunkId, StoredChunk> found;
  for (const ChunkFileSummary& file : files) {
    const auto position = static_cast<uint32_t>(manifest.files.size());
    manifest.files.push_back({.name = file.name,
                              .bytes = file.bytes,
                              .num_records = static_cast<uint32_t>(file.chunks.size()),
                              .checksum = file.checksum});
    for (const ChunkPlace& place : file.chunks)
      found.emplace(place.chunk, StoredChunk{.file = position, .place = place});
  }
  manifest.chunks.reserve(table.num_chunks());
  for (uint64_t i = 0; i < table.num_chunks(); ++i) {
    const auto chunk = found.find(ChunkId{i});
    const bool is_there = chunk != found.end();
    if (!is_there || (manifest.versions == ChunkVersions::kOfOneStep &&
                      chunk->second.place.version != manifest.step)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "checkpoint of step %d: %s %s",
          manifest.step.value(),
          DescribeChunk(manifest, table, ChunkId{i}),
          is_there ? absl::StrCat("has version ", chunk->second.place.version.value())
                   : "was captured by nobody"));
    }
    manifest.chunks.push_back(chunk->second);
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const CheckpointManifest& manifest) {
  PUSHPULL_RETURN_IF_ERROR(CheckTexts(manifest));
  PUSHPULL_RETURN_IF_ERROR(CheckTensors(manifest.tensors));
  PUSHPULL_ASSIGN_OR_RETURN(const ChunkTable table, MakeChunkTable(manifest.tensors));
  PUSHPULL_RETURN_IF_ERROR(CheckFileList(manifest.files));
  if (manifest.chunks.size() != table.num_chunks()) {
    return Wrong(absl::StrCat(
        "has ", manifest.chunks.size(), " chunks, its tensors make ", table.num_chunks()));
  }
  for (size_t i = 0; i < manifest.chunks.size(); ++i) {
    if (manifest.chunks[i].place.chunk != ChunkId{i})
      return Wrong("the chunks are not in the order of their ids");
    PUSHPULL_RETURN_IF_ERROR(CheckChunk(manifest, table, manifest.chunks[i]));
  }
  return absl::OkStatus();
}

std::vector<std::string> CompareTensors(const CheckpointManifest& manifest,
                                        std::span<const TensorSpec> wanted) {
  SpecsByName saved_by_name = ByName(manifest.tensors);
  std::vector<std::string> differences;
  const auto add = [&differences](const std::string& name, absl::string_view what) {
    differences.push_back(absl::StrCat("tensor ", name, ": ", what));
  };
  for (const TensorSpec& tensor : wanted) {
    const auto found = saved_by_name.find(tensor.name);
    if (found == saved_by_name.end()) {
      add(tensor.name, "is in the job, not in the checkpoint");
      continue;
    }
    const TensorSpec& saved = *found->second;
    saved_by_name.erase(found);
    CompareValue(saved, tensor, differences);
    if (!HaveSameState(saved.optimizer, tensor.optimizer)) {
      differences.push_back(Difference(
          tensor, "has optimizer", ToString(saved.optimizer), ToString(tensor.optimizer)));
    }
  }
  for (const TensorSpec& tensor : manifest.tensors) {
    if (saved_by_name.contains(tensor.name))
      add(tensor.name, "is in the checkpoint, not in the job");
  }
  return differences;
}

bool IsOfLibrary(absl::string_view tensor) {
  return absl::StartsWith(tensor, "pushpull.") || absl::StartsWith(tensor, "pushpull-");
}

std::vector<std::string> CompareValues(const CheckpointManifest& manifest,
                                       std::span<const TensorSpec> wanted) {
  const SpecsByName saved_by_name = ByName(manifest.tensors);
  std::vector<std::string> differences;
  size_t num_shared = 0;
  for (const TensorSpec& tensor : wanted) {
    const auto found = saved_by_name.find(tensor.name);
    if (IsOfLibrary(tensor.name) || found == saved_by_name.end()) continue;
    ++num_shared;
    CompareValue(*found->second, tensor, differences);
  }
  if (num_shared == 0) differences.emplace_back("it has none of the job's tensors");
  return differences;
}

std::vector<std::string> LackingValues(const CheckpointManifest& manifest,
                                       std::span<const TensorSpec> wanted) {
  const SpecsByName saved_by_name = ByName(manifest.tensors);
  std::vector<std::string> lacking;
  for (const TensorSpec& tensor : wanted) {
    if (!IsOfLibrary(tensor.name) && !saved_by_name.contains(tensor.name))
      lacking.push_back(tensor.name);
  }
  return lacking;
}

std::vector<size_t> MatchChunks(const CheckpointManifest& manifest,
                                std::span<const TensorSpec> wanted) {
  const RangesByName saved_by_name = ChunksByName(manifest.tensors);
  std::vector<size_t> positions;
  positions.reserve(manifest.chunks.size());
  for (const TensorSpec& tensor : wanted) {
    const auto found = saved_by_name.find(tensor.name);
    PUSHPULL_CHECK(found != saved_by_name.end());
    const ChunkRange& chunks = found->second;
    for (uint64_t i = 0; i < chunks.num_chunks; ++i) positions.push_back(chunks.first.value() + i);
  }
  return positions;
}

std::vector<std::optional<size_t>> MatchValues(const CheckpointManifest& manifest,
                                               std::span<const TensorSpec> wanted) {
  const RangesByName saved_by_name = ChunksByName(manifest.tensors);
  const RangesByName wanted_by_name = ChunksByName(wanted);
  std::vector<std::optional<size_t>> positions;
  for (const TensorSpec& tensor : wanted) {
    const auto found = saved_by_name.find(tensor.name);
    const bool is_taken = found != saved_by_name.end() && !IsOfLibrary(tensor.name);
    for (uint64_t i = 0; i < wanted_by_name.at(tensor.name).num_chunks; ++i)
      positions.push_back(is_taken ? std::optional(found->second.first.value() + i) : std::nullopt);
  }
  return positions;
}

}  // namespace pushpull
