// SPDX-License-Identifier: Apache-2.0
//
// Writes what the lanes of a server capture for a checkpoint, on a thread that may wait for the
// disk, and reports to the coordinator. lane_capture.h decides what is captured and when; the
// coordinator decides when a checkpoint is complete.
//
// From capture until it is written, a chunk is held by reference, and a step in the meantime is
// applied beside it, into memory that was made resident in advance. A checkpoint thus costs memory:
// at most a second copy of each chunk's value and optimizer state, until they are written.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/membership/control.h"
#include "runtime/store/spare_buffers.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// One chunk at one version; the buffers do not change.
struct ChunkCapture {
  ChunkRecord record;
  std::shared_ptr<const HostBuffer> value;
  std::shared_ptr<const HostBuffer> state;
};

// Thread-safe. The tasks that it posts keep it alive.
class CheckpointWriter final : public std::enable_shared_from_this<CheckpointWriter> {
 public:
  // Called on the disk's executor.
  using Reporter = std::function<void(Captured)>;

  // `disk` runs tasks that may block; `disk` and `files` outlive this object.
  CheckpointWriter(
      ServerId server, size_t lane_count, Executor& disk, FileSystem& files, Reporter report);

  // Begins an attempt and drops an earlier one. Called before any lane begins to capture.
  void Begin(const Capture& order);
  // Drops what has not been written of this attempt.
  void End(uint64_t attempt);

  bool is_wanted(uint64_t attempt) const { return wanted_ == attempt; }

  // Prepares memory for the steps that follow the capture, `sizes` in bytes, then calls `then` on
  // the disk's executor. The memory is kept until everything is written, across failed attempts
  // too, unless writing failed here. If memory is short, each apply allocates its own.
  void Prepare(uint64_t attempt, std::vector<uint64_t> sizes, std::function<void()> then);
  SpareBuffers& spares() { return spares_; }

  // Drops everything; for the end of the process.
  void Abandon() { wanted_ = 0; }

  // Queues one chunk. Ignored if the attempt is over.
  void Write(uint64_t attempt, size_t lane, ChunkCapture capture);
  // The lane has captured everything it has to, for now. Once all lanes have finished, their files
  // are reported; if a lane then finishes again, its new file is reported at once. `then` is called
  // on the disk's executor once nothing that the lane wrote before is held any more; never if the
  // attempt ends first.
  void FinishLane(uint64_t attempt, size_t lane, std::function<void()> then);

 private:
  struct Attempt {
    Capture order;
    std::map<size_t, std::unique_ptr<ChunkFileWriter>> open;  // by lane
    std::map<size_t, uint32_t> parts;                         // files begun, by lane
    std::set<size_t> finished_lanes;
    std::vector<ChunkFileSummary> files;  // finished, not reported
  };

  void Post(uint64_t attempt, std::function<void(Attempt&)> task);
  absl::Status Append(Attempt& attempt, size_t lane, const ChunkCapture& capture);
  absl::Status Finish(Attempt& attempt, size_t lane);
  void Fail(const absl::Status& why);

  const ServerId server_;
  const size_t lane_count_;
  Executor& disk_;
  FileSystem& files_;
  const Reporter report_;
  // The current attempt; queued tasks of any other are dropped when their turn comes.
  std::atomic<uint64_t> wanted_ = 0;
  SpareBuffers spares_;
  std::optional<Attempt> attempt_;  // confined to the disk's executor
};

}  // namespace pushpull
