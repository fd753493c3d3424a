// SPDX-License-Identifier: Apache-2.0
//
// A small job whose values follow from tensor, chunk and step, so that a test can save it and see
// whether what comes back is what was saved. The golden files are made of it: what it makes must
// not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/manifest.h"

namespace pushpull {

struct SampleOptions {
  Step step{42};
  uint32_t num_servers = 2;
  uint64_t attempt = 7;
  ChunkVersions versions = ChunkVersions::kOfOneStep;
  bool is_large = false;           // a tensor of several chunks more
  const char* job_namespace = "";  // as in the golden files
  const char* job = "sample";
};

CheckpointOwner SampleOwner(const SampleOptions& options = {});

// Every optimizer, scalars, an empty tensor.
std::vector<TensorSpec> SampleTensors(const SampleOptions& options);

struct SampleChunk {
  ChunkRecord record;
  std::vector<std::byte> value;
  std::vector<std::byte> state;
};

SampleChunk MakeSampleChunk(const SampleOptions& options, const ChunkTable& table, ChunkId id);

// All but what AddFiles and WriteManifest fill in.
CheckpointManifest SampleManifest(const SampleOptions& options);

// Writes the files of all servers, the chunks dealt out in turn; then the manifest.
absl::StatusOr<std::vector<ChunkFileSummary>> WriteSampleFiles(FileSystem& file_system,
                                                               const std::string& dir,
                                                               const SampleOptions& options);
absl::Status WriteSample(FileSystem& file_system,
                         const std::string& dir,
                         const SampleOptions& options);

// Reads every chunk of the checkpoint and compares it with what was saved. Empty: all the same.
std::string CompareWithSample(FileSystem& file_system,
                              const std::string& folder,
                              const SampleOptions& options);

}  // namespace pushpull
