// SPDX-License-Identifier: Apache-2.0
//
// A group: workers that sum their gradients before one of them pushes the sum for all of them
// (spec.sync.localReduce, docs/decisions/0084-joint-pushes.md). Each member sums a part of the
// chunks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"

namespace pushpull {

// The contributors to a push are listed in its meta (kFrameMetaBytesMax). The coordinator forms no
// larger groups.
constexpr size_t kGroupMembersMax = 64;

struct GroupMember {
  WorkerId worker;
  Incarnation incarnation;
  Step from_step;       // it pushes no earlier step
  std::string address;  // where the others reach it: [grpc://]host:port

  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

// Whether groups sum the tensor: it has float32 values that only the reduction combines. Every
// other tensor is pushed by each worker: halves would be rounded twice, a codec keeps a residual
// for each worker, a clipped step asks each worker back, rows differ between workers, and the
// sample queue has a part for each.
bool IsSummedInGroups(const TensorSpec& tensor);

// Thread-compatible.
class WorkerGroup {
 public:
  // The sizes of the job's chunks, by id, in bytes; 0: not summed in groups.
  void SetChunks(std::vector<uint64_t> bytes);
  // In the order of their index; fewer than two form no group.
  void SetMembers(std::vector<GroupMember> members);

  const std::vector<GroupMember>& members() const { return members_; }
  // The members that push this step.
  std::vector<const GroupMember*> MembersIn(Step step) const;
  // The step's push of the chunk is summed in the group.
  bool IsJoint(ChunkId chunk, Step step) const;
  // Who sums the chunk in this step; IsJoint must hold. Chunks are spread by their bytes, the
  // largest first, so that every member carries about the same. The same for every member that
  // knows the same chunks and members.
  const GroupMember& SummerOf(ChunkId chunk, Step step) const;

 private:
  std::vector<uint8_t> LayoutFor(size_t members) const;

  std::vector<uint64_t> chunk_bytes_;
  std::vector<GroupMember> members_;
  // By the number of members that push the step: the position of each chunk's summing member.
  mutable std::map<size_t, std::vector<uint8_t>> layouts_;
};

}  // namespace pushpull
