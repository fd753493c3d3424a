// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for NCCL between threads of one process, on the streams of FakeCudaDriver. Collectives
// run when the streams of all ranks have come to them; calls that do not belong together, and
// communicators that are never ended, are noted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collective/nccl/nccl_api.h"
#include "tests/fakes/fake_cuda_driver.h"

namespace pushpull {

// Thread-safe. Must outlive everything that uses its api().
class FakeNccl {
 public:
  explicit FakeNccl(FakeCudaDriver& driver) : driver_(driver) {}
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // As a library of this version: 2.27 and later can shrink, 2.30 and later grow (here).
  std::shared_ptr<const NcclApi> api(int version = 23203);

  // From now on all other ranks of its communicator find out that this one is gone.
  void LoseRank(int rank) ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<std::string> violations() const ABSL_LOCKS_EXCLUDED(mu_);
  // Communicators that were not ended.
  size_t num_left() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Meeting = FakeCudaDriver::Meeting;

  // What one call of all ranks has.
  struct Call {
    std::string text;
    std::shared_ptr<Meeting> meeting;
    std::map<int, NcclArrays> arrays;  // by rank
  };
  struct Group {
    int size = 0;
    std::set<int> ranks = {};  // that have come
    std::vector<std::shared_ptr<Call>> calls = {};
    bool is_broken = false;
  };
  struct Part {
    std::shared_ptr<Group> group;
    int rank = 0;
    size_t num_calls = 0;
  };

  NcclComm Add(std::shared_ptr<Group> group, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Group> GroupOf(const std::string& key, int size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Part& PartOf(NcclComm comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cancel(Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  NcclResult InitRank(NcclComm* comm, int size, const NcclId& id, int rank)
      ABSL_LOCKS_EXCLUDED(mu_);
  NcclResult WaitForRanks(NcclComm comm) ABSL_LOCKS_EXCLUDED(mu_);
  NcclResult AsyncError(NcclComm comm, NcclResult* state) ABSL_LOCKS_EXCLUDED(mu_);
  NcclResult Abort(NcclComm comm) ABSL_LOCKS_EXCLUDED(mu_);
  NcclResult Shrink(NcclComm comm, const std::set<int>& lost, NcclComm* next)
      ABSL_LOCKS_EXCLUDED(mu_);
  NcclResult Grow(NcclComm comm, int size, const NcclId* id, int rank, NcclComm* next)
      ABSL_LOCKS_EXCLUDED(mu_);
  void FillCollectives(NcclApi& api);
  // Calls with the same text belong together.
  NcclResult Enqueue(NcclComm comm,
                     CuStream stream,
                     const std::string& text,
                     const NcclArrays& arrays,
                     void (*run)(const Call& call, int argument),
                     int argument) ABSL_LOCKS_EXCLUDED(mu_);

  FakeCudaDriver& driver_;
  mutable Mutex mu_;
  CondVar joined_;
  std::map<std::string, std::shared_ptr<Group>> groups_ ABSL_GUARDED_BY(mu_);  // by how they began
  std::map<uint64_t, Part> parts_ ABSL_GUARDED_BY(mu_);
  uint64_t next_handle_ ABSL_GUARDED_BY(mu_) = 1;
  int next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
