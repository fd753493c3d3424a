// SPDX-License-Identifier: Apache-2.0
//
// What a rank of a communicator sends, receives and reduces in a collective, for each algorithm.
// Pure: each rank computes its own part, and the parts of all ranks fit together.
//
// A schedule is a list of operations over ranges of one array. Operations run concurrently as far
// as they can: each moves along its range from the first element to the last, and stays behind the
// earlier operations listed in its `after`. So an element that has arrived and been reduced is on
// its way to the next rank while the elements after it are still arriving, however large the ranges
// are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// The numbers are part of the messages between ranks: they never change.
enum class Collective : uint8_t {
  kAllReduce = 1,      // every rank gets all elements reduced
  kReduceScatter = 2,  // rank i gets piece i reduced, the other elements are undefined
  kAllGather = 3,      // rank i has piece i, every rank gets all pieces
  kBroadcast = 4,      // every rank gets the elements of the root
};

// With n ranks and S bytes: what an all-reduce sends, and how many sends follow one another.
enum class Algorithm : uint8_t {
  kAuto = 0,
  kRing = 1,               // 2 (n - 1) / n S per rank, 2 (n - 1) sends
  kBidirectionalRing = 2,  // likewise, half of it in each direction
  kTree = 3,               // a binary tree: at most 3 S per rank, 2 log2 n sends
  kHalvingDoubling = 4,    // 2 (n - 1) / n S per rank, 2 log2 n sends; if n is no power of two, the
                           // ranks beyond it hand their array to another: S and two more sends
  kRoot = 5,               // rank 0 sums for all and sends (n - 1) S; 2 sends
  kHost = 6,               // every rank gets all arrays and sums for itself: (n - 1) S, one send
  kSplit = 7,              // each rank sums one piece for all: 2 (n - 1) / n S per rank, 2 sends
};

// All but kAuto.
std::vector<Algorithm> AllAlgorithms();

// "all-reduce", "halving-doubling", ...
std::string ToString(Collective collective);
std::string ToString(Algorithm algorithm);
// The inverses. kInvalidArgument quotes the text and lists the names.
absl::StatusOr<Collective> ParseCollective(absl::string_view text);
absl::StatusOr<Algorithm> ParseAlgorithm(absl::string_view text);

struct ElementRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// One of `ranks` pieces that are as equal as possible, the first ones larger by one element.
ElementRange PieceOf(uint64_t elements, int ranks, int piece);

enum class OpKind : uint8_t {
  kSend,
  kReceive,         // replaces the range
  kReceiveReduce,   // reduces into the range
  kReceiveScratch,  // like kReceive, into the scratch array
  kScratchReduce,   // like kReceiveReduce, into the scratch array
  kFold,            // the range becomes the scratch array's, reduced with it
  kFinish,          // finishes reduced elements: a mean is divided
};

constexpr bool IsReceive(OpKind kind) {
  return kind >= OpKind::kReceive && kind <= OpKind::kScratchReduce;
}

struct ScheduleOp {
  OpKind kind = OpKind::kSend;
  int peer = -1;  // of sends and receives
  ElementRange range = {};
  // Earlier operations, by index, which this one never overtakes.
  std::vector<uint32_t> after = {};
};

struct RankSchedule {
  // Sends to a peer are in the order of the peer's receives from this rank.
  std::vector<ScheduleOp> ops;
  bool needs_scratch = false;  // an array as large as the values
};

struct ScheduleRequest {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;  // not kAuto
  int ranks = 1;
  int rank = 0;
  uint64_t elements = 0;
  int root = 0;               // of a broadcast
  bool needs_finish = false;  // whether reduced elements get a kFinish
  // Above 0: an all-reduce that first reduces and then gathers pieces does so in blocks of this
  // many elements, so that reduced elements are sent on while they are in the cache.
  uint64_t block_elements = 0;

  friend bool operator==(const ScheduleRequest&, const ScheduleRequest&) = default;
};

// Every element is reduced by one rank, or by all ranks in rank order, so all ranks get the same
// bits. An all-reduce or reduce-scatter of equal input gives the same bits again, whenever messages
// arrive.
RankSchedule MakeSchedule(const ScheduleRequest& request);

// The total number of elements that this rank sends.
uint64_t ElementsSent(const RankSchedule& schedule);

}  // namespace pushpull
