// SPDX-License-Identifier: Apache-2.0
//
// What workers report for `pushpull trace`: each push of a chunk with every time that the worker
// and its server recorded. Times are in nanoseconds of the named side's steady clock; the reader
// aligns the clocks (runtime/trace/clock_alignment.h). Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"

namespace pushpull {

// One push of one chunk and its answer.
struct TracedPush {
  ServerId server;
  ChunkId chunk;
  Step step;  // on the wire
  // By the worker's clock.
  int64_t ready = 0;     // the program handed the gradient over
  int64_t taken_up = 0;  // the worker's thread began with it
  int64_t encode_ns = 0;
  int64_t sent = 0;      // its last byte was handed to the channel
  int64_t received = 0;  // the answer had arrived completely
  int64_t applied = 0;   // the program can see the new value
  // By the server's clock.
  int64_t received_at = 0;  // the push was complete
  int64_t server_queue_ns = 0;
  int64_t sum_ns = 0;
  int64_t wait_ns = 0;  // for other contributors
  int64_t optimize_ns = 0;
  int64_t replicate_ns = 0;
  int64_t published_at = 0;
  friend bool operator==(const TracedPush&, const TracedPush&) = default;
};

// Something that the worker's program did, by its clock.
struct TracedSpan {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const TracedSpan&, const TracedSpan&) = default;
};

// The server's steady clock minus the worker's.
struct TracedClock {
  ServerId server;
  int64_t offset_ns = 0;
  friend bool operator==(const TracedClock&, const TracedClock&) = default;
};

// A tensor and the first of its consecutive chunks.
struct TracedTensor {
  std::string name;
  ChunkId first_chunk;
  friend bool operator==(const TracedTensor&, const TracedTensor&) = default;
};

// A part of what a worker has recorded for a trace.
struct TraceReport {
  static constexpr size_t kPushesMax = 4096;  // per report; the same limit for spans
  static constexpr size_t kNameBytesMax = 300;

  uint64_t number = 0;  // of the trace
  WorkerId worker;
  std::vector<TracedClock> clocks;    // of the servers in `pushes`
  std::vector<TracedTensor> tensors;  // likewise, by first chunk
  std::vector<TracedPush> pushes;
  std::vector<TracedSpan> spans;
  uint64_t left_out = 0;  // pushes and spans for which there was no room
  bool is_last = false;
};

// A request of `pushpull trace`.
struct TraceRequest {
  static constexpr uint32_t kStepsMax = 1000;
  static constexpr uint32_t kSecondsMax = 600;

  uint32_t steps = 0;
  uint32_t seconds = 0;  // after which a worker reports what it has
};

// The parts of a trace that have arrived, from the one that the request names on.
struct TraceParts {
  std::vector<TraceReport> reports;
  uint64_t next = 0;              // the part to ask for next
  std::vector<WorkerId> missing;  // have not reported everything yet
  bool is_over = false;           // nothing follows
};

}  // namespace pushpull
