// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/optim/optimizer.h"

namespace pushpull {
namespace {

std::vector<std::byte> MakeBytes(uint64_t seed, size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state >> 32);
  }
  return bytes;
}

ChunkTable TableOf(const SampleOptions& options) {
  absl::StatusOr<ChunkTable> table = MakeChunkTable(SampleTensors(options));
  PUSHPULL_CHECK(table.ok());
  return *std::move(table);
}

}  // namespace

std::vector<TensorSpec> SampleTensors(const SampleOptions& options) {
  std::vector<TensorSpec> tensors{
      {.name = "layer.weight",
       .dims = {3, 5},
       .optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.001}},
      {.name = "layer.bias",
       .dims = {5},
       .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9}},
      {.name = "scale", .dims = {}, .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1}},
      {.name = "empty", .dims = {0, 7}, .optimizer = {.kind = OptimizerKind::kSum}},
      {.name = "count", .dims = {2, 1, 2}, .reduction = Reduction::kSum, .optimizer = {}},
      {.name = "rates",
       .dims = {1},
       .optimizer = {.kind = OptimizerKind::kAdagrad, .learning_rate = 0.01, .epsilon = 1e-10}},
      {.name = "decayed",
       .dims = {7},
       .reduction = Reduction::kMax,
       .optimizer = {.kind = OptimizerKind::kAdamW, .learning_rate = 0.002, .weight_decay = 0.01}}};
  if (options.is_large) {
    tensors.push_back({.name = "large",
                       .dims = {175, 1000},
                       .optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.001}});
  }
  return tensors;
}

SampleChunk MakeSampleChunk(const SampleOptions& options, const ChunkTable& table, ChunkId id) {
  const ChunkLayout layout = *table.FindChunk(id);
  const TensorSpec tensor = SampleTensors(options)[layout.tensor.value()];
  const uint64_t step = options.step.value();
  const bool is_one_step = options.versions == ChunkVersions::kOfOneStep;
  SampleChunk chunk{.record = {.chunk = id,
                               .tensor = layout.tensor,
                               .index = layout.index,
                               .version = Step{is_one_step ? step : step + id.value()},
                               .updates = step - 1,
                               .epoch = {Term{3}, 100 + id.value()},
                               .dtype = tensor.dtype}};
  if (!is_one_step) {
    chunk.record.worker_updates = {{.worker = WorkerId{0}, .update = step},
                                   {.worker = WorkerId{5}, .update = step + id.value()}};
  }
  const uint64_t seed = 1000 * step + 10 * id.value();
  chunk.value = MakeBytes(seed, layout.bytes);
  chunk.state = MakeBytes(seed + 1, layout.bytes * StateFloatsPerValue(tensor.optimizer));
  return chunk;
}

CheckpointOwner SampleOwner(const SampleOptions& options) {
  return {.job_namespace = options.job_namespace, .job = options.job};
}

CheckpointManifest SampleManifest(const SampleOptions& options) {
  const bool is_one_step = options.versions == ChunkVersions::kOfOneStep;
  return {.owner = SampleOwner(options),
          .step = options.step,
          .mode = is_one_step ? "Sync" : "Async",
          .versions = options.versions,
          .written_at = 1'700'000'000,
          .tensors = SampleTensors(options),
          .system = {{.name = "data-position", .bytes = MakeBytes(options.step.value(), 11)},
                     {.name = "nothing", .bytes = {}}}};
}

absl::StatusOr<std::vector<ChunkFileSummary>> WriteSampleFiles(FileSystem& file_system,
                                                               const std::string& dir,
                                                               const SampleOptions& options) {
  const ChunkTable table = TableOf(options);
  std::vector<ChunkFileSummary> summaries;
  for (uint32_t server = 0; server < options.num_servers; ++server) {
    PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<ChunkFileWriter> writer,
                              ChunkFileWriter::Create(file_system,
                                                      dir,
                                                      {.step = options.step,
                                                       .attempt = options.attempt,
                                                       .server = ServerId{server},
                                                       .lane = 0}));
    for (uint64_t id = server; id < table.num_chunks(); id += options.num_servers) {
      const SampleChunk chunk = MakeSampleChunk(options, table, ChunkId{id});
      PUSHPULL_RETURN_IF_ERROR(writer->Append(chunk.record, chunk.value, chunk.state));
    }
    PUSHPULL_ASSIGN_OR_RETURN(ChunkFileSummary summary, writer->Finish());
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

absl::Status WriteSample(FileSystem& file_system,
                         const std::string& dir,
                         const SampleOptions& options) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<ChunkFileSummary> files,
                            WriteSampleFiles(file_system, dir, options));
  CheckpointManifest manifest = SampleManifest(options);
  PUSHPULL_RETURN_IF_ERROR(AddFiles(files, manifest));
  return WriteManifest(file_system, dir, manifest);
}

std::string CompareWithSample(FileSystem& file_system,
                              const std::string& folder,
                              const SampleOptions& options) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(file_system, folder);
  if (!manifest.ok()) return manifest.status().ToString();
  const CheckpointManifest saved = SampleManifest(options);
  if (manifest->step != saved.step || manifest->owner != saved.owner ||
      manifest->mode != saved.mode || manifest->written_at != saved.written_at ||
      manifest->system != saved.system || !CompareTensors(*manifest, saved.tensors).empty()) {
    return "the manifest is another one";
  }
  const ChunkTable table = TableOf(options);
  for (const StoredChunk& stored : manifest->chunks) {
    const SampleChunk chunk = MakeSampleChunk(options, table, stored.place.chunk);
    const absl::StatusOr<ChunkFileReader> reader =
        ChunkFileReader::Open(file_system, JoinPath(folder, manifest->files[stored.file].name));
    if (!reader.ok()) return reader.status().ToString();
    std::vector<std::byte> value(chunk.value.size());
    std::vector<std::byte> state(chunk.state.size());
    const absl::StatusOr<ChunkRecord> record = reader->Read(stored.place, value, state);
    if (!record.ok()) return record.status().ToString();
    if (*record != chunk.record || value != chunk.value || state != chunk.state)
      return absl::StrCat("chunk ", stored.place.chunk.value(), " is another one");
  }
  return "";
}

}  // namespace pushpull
