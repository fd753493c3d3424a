// SPDX-License-Identifier: Apache-2.0
//
// What a worker of a ring writes to a checkpoint and reads from one: chunks and files are those of
// servers (docs/decisions/0009-checkpoint-format.md), so a job may be saved in mode AllReduce and
// restored in another, and vice versa.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/membership/control.h"
#include "runtime/ring/ring_state.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Copies of some chunks as they are before a step, which no later step changes. Thread-compatible.
class StatePart {
 public:
  // Copies the chunks whose number, divided by `parts`, leaves `part`.
  //
  //   kResourceExhausted  no memory; the text names the bytes
  static absl::StatusOr<StatePart> Copy(const RingState& state, uint32_t part, uint32_t parts);

  // Writes them to a file of its own in `order.folder`, which is named after order.part. Blocks on
  // the disk. None: there are no chunks. Errors are those of ChunkFileWriter.
  absl::StatusOr<std::vector<ChunkFileSummary>> Write(FileSystem& files,
                                                      const Capture& order) const;

 private:
  struct Chunk {
    ChunkRecord record;
    HostBuffer value;
    HostBuffer optimizer_state;
  };

  std::vector<Chunk> chunks_;
};

// Reads values, optimizer states and update counts of the checkpoint in `folder` into `state`; the
// mark stays. Blocks on the disk. After an error `state` is a mixture.
//
//   kNotFound         there is no checkpoint in this folder, as this worker sees it
//   kDataLoss         it is damaged; the text has file and offset
//   kUnimplemented    written in a newer format
//   kInvalidArgument  its tensors differ from the job's
absl::Status ReadState(FileSystem& files, const std::string& folder, RingState& state);

// Reads the values alone, of those tensors that the checkpoint has. Likewise.
absl::Status ReadValues(FileSystem& files, const std::string& folder, RingState& state);

}  // namespace pushpull
