// SPDX-License-Identifier: Apache-2.0
//
// Which workers sum their gradients before they are pushed (spec.sync.localReduce,
// docs/decisions/0084-joint-pushes.md): those on one host, or in one rack. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/consistency/worker_group.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// ViewMember::group of the registered workers: the same for all of a host or rack, whichever
// coordinator it comes from. A worker whose place is unknown is left out.
std::map<WorkerId, uint64_t> GroupsByPlace(const MemberRegistry& members, LocalReduce by);

// Thread-compatible.
class WorkerGroups {
 public:
  explicit WorkerGroups(LocalReduce by) : by_(by) {}

  LocalReduce by() const { return by_; }
  // What each worker has to be told: its group, if that is not what it was told last in its present
  // session. A worker that has announced its last step, or that others cannot reach, pushes alone.
  std::vector<std::pair<WorkerId, SetGroup>> Update(const View& view,
                                                    const MemberRegistry& members);

 private:
  struct Told {
    SessionId session;
    std::vector<GroupMember> group;
    friend bool operator==(const Told&, const Told&) = default;
  };

  const LocalReduce by_;
  std::map<WorkerId, Told> told_;
};

}  // namespace pushpull
