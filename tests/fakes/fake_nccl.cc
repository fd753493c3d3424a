// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/check.h"
#include "runtime/tensor/element_reduce.h"

namespace pushpull {
namespace {

constexpr int kCanShrink = 22700;
constexpr int kCanGrow = 23000;

ElementKind KindOf(NcclType type) {
  switch (type) {
    case kNcclInt8:
      return ElementKind::kInt8;
    case kNcclUint8:
      return ElementKind::kUint8;
    case kNcclInt32:
      return ElementKind::kInt32;
    case kNcclInt64:
      return ElementKind::kInt64;
    case kNcclFloat16:
      return ElementKind::kFloat16;
    case kNcclFloat32:
      return ElementKind::kFloat32;
    case kNcclFloat64:
      return ElementKind::kFloat64;
    case kNcclBFloat16:
      return ElementKind::kBFloat16;
  }
  PUSHPULL_CHECK(false);
}

ElementOp OpOf(int op) {
  constexpr ElementOp kOps[] = {
      ElementOp::kSum, ElementOp::kProduct, ElementOp::kMax, ElementOp::kMin, ElementOp::kMean};
  return kOps[op];
}

size_t BytesOf(const NcclArrays& arrays) {
  return arrays.count * ElementBytes(KindOf(arrays.type));
}

// All arrays from `offset` on, `num_bytes` of each, reduced.
std::vector<std::byte> Reduced(const std::map<int, NcclArrays>& arrays,
                               ElementOp op,
                               size_t offset,
                               size_t num_bytes) {
  std::vector<std::byte> sum;
  for (const auto& [rank, of_rank] : arrays) {
    const std::span from(static_cast<const std::byte*>(of_rank.from) + offset, num_bytes);
    if (sum.empty()) {
      sum.assign(from.begin(), from.end());
    } else {
      Reduce(KindOf(of_rank.type), op, sum, from);
    }
  }
  FinishReduction(KindOf(arrays.begin()->second.type), op, arrays.size(), sum);
  return sum;
}

}  // namespace

std::shared_ptr<const NcclApi> FakeNccl::api(int version) {
  auto api = std::make_shared<NcclApi>();
  api->version = version;
  api->get_error_string = [](NcclResult result) {
    return result == kNcclRemoteError ? "remote process exited" : "an error of the stand-in";
  };
  api->get_last_error = [](NcclComm /*comm*/) { return "as the stand-in says"; };
  api->get_unique_id = [this](NcclId* id) {
    const MutexLock lock(mu_);
    id->bytes[0] = static_cast<char>(next_id_++);
    return kNcclSuccess;
  };
  api->init_rank = [this](
                       NcclComm* comm, int size, const NcclId& id, int rank, NcclConfig* config) {
    PUSHPULL_CHECK(config->size == 24);
    const NcclResult result = InitRank(comm, size, id, rank);
    return config->blocking == 0 ? result : WaitForRanks(*comm);
  };
  api->get_async_error = [this](NcclComm comm, NcclResult* state) {
    return AsyncError(comm, state);
  };
  api->abort = [this](NcclComm comm) { return Abort(comm); };
  FillCollectives(*api);
  if (version >= kCanShrink) {
    api->shrink = [this](NcclComm comm,
                         int* lost,
                         int count,
                         NcclComm* next,
                         NcclConfig* /*config*/,
                         int flags) {
      PUSHPULL_CHECK(flags == kNcclShrinkAbort);
      return Shrink(comm, std::set<int>(lost, lost + count), next);
    };
  }
  if (version >= kCanGrow) {
    api->get_grow_id = [this](NcclComm /*comm*/, NcclId* id) {
      const MutexLock lock(mu_);
      id->bytes[0] = static_cast<char>(next_id_++);
      return kNcclSuccess;
    };
    api->grow = [this](NcclComm comm,
                       int size,
                       const NcclId* id,
                       int rank,
                       NcclComm* next,
                       NcclConfig* /*config*/) { return Grow(comm, size, id, rank, next); };
  }
  return api;
}

void FakeNccl::LoseRank(int rank) {
  const MutexLock lock(mu_);
  for (auto& [handle, part] : parts_) {
    if (part.rank == rank) part.group->is_broken = true;
  }
}

std::vector<std::string> FakeNccl::violations() const {
  const MutexLock lock(mu_);
  return violations_;
}

size_t FakeNccl::num_left() const {
  const MutexLock lock(mu_);
  return parts_.size();
}

NcclComm FakeNccl::Add(std::shared_ptr<Group> group, int rank) {
  if (rank < 0 || rank >= group->size || !group->ranks.insert(rank).second)
    violations_.push_back(absl::StrCat("rank ", rank, " came twice or is none"));
  parts_[next_handle_] = {std::move(group), rank};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle, never read
  return reinterpret_cast<NcclComm>(next_handle_++);
}

std::shared_ptr<FakeNccl::Group> FakeNccl::GroupOf(const std::string& key, int size) {
  std::shared_ptr<Group>& group = groups_[key];
  if (group == nullptr) {
    group = std::make_shared<Group>();
    group->size = size;
  }
  if (group->size != size) violations_.push_back("ranks disagree on how many they are");
  return group;
}

FakeNccl::Part& FakeNccl::PartOf(NcclComm comm) {
  return parts_.at(reinterpret_cast<uint64_t>(comm));
}

void FakeNccl::Cancel(Group& group) {
  // The other ranks of an operation that has not ended find out.
  for (const std::shared_ptr<Call>& call : group.calls)
    group.is_broken |= driver_.CancelMeeting(*call->meeting);
}

NcclResult FakeNccl::InitRank(NcclComm* comm, int size, const NcclId& id, int rank) {
  const MutexLock lock(mu_);
  const std::string key = absl::StrCat("id ", int{id.bytes[0]});
  *comm = Add(GroupOf(key, size), rank);
  joined_.NotifyAll();
  return kNcclInProgress;
}

NcclResult FakeNccl::WaitForRanks(NcclComm comm) {
  const MutexLock lock(mu_);
  const std::shared_ptr<Group> group = PartOf(comm).group;
  for (BriefWait wait; group->ranks.size() < static_cast<size_t>(group->size);)
    wait.Continue(joined_, mu_);
  return kNcclSuccess;
}

NcclResult FakeNccl::AsyncError(NcclComm comm, NcclResult* state) {
  const MutexLock lock(mu_);
  const Group& group = *PartOf(comm).group;
  *state = kNcclSuccess;
  if (group.ranks.size() < static_cast<size_t>(group.size)) *state = kNcclInProgress;
  if (group.is_broken) *state = kNcclRemoteError;
  return kNcclSuccess;
}

NcclResult FakeNccl::Abort(NcclComm comm) {
  const MutexLock lock(mu_);
  const auto found = parts_.find(reinterpret_cast<uint64_t>(comm));
  if (found == parts_.end()) {
    violations_.push_back("a communicator ended twice");
    return kNcclInvalidArgument;
  }
  Cancel(*found->second.group);
  parts_.erase(found);
  return kNcclSuccess;
}

NcclResult FakeNccl::Shrink(NcclComm comm, const std::set<int>& lost, NcclComm* next) {
  const MutexLock lock(mu_);
  const Part& part = PartOf(comm);
  Cancel(*part.group);
  const std::string key = absl::StrCat("shrunk ",
                                       reinterpret_cast<uint64_t>(part.group.get()),
                                       " without ",
                                       absl::StrJoin(lost, ","));
  const auto lower = std::count_if(lost.begin(), lost.end(), [&](int r) { return r < part.rank; });
  const int rank = part.rank - static_cast<int>(lower);
  *next = Add(GroupOf(key, part.group->size - static_cast<int>(lost.size())), rank);
  return kNcclInProgress;
}

NcclResult FakeNccl::Grow(NcclComm comm, int size, const NcclId* id, int rank, NcclComm* next) {
  const MutexLock lock(mu_);
  // Members know the group by the communicator; the one with the id ties it to the new ranks'.
  const auto key_of_id = [&] { return absl::StrCat("grown by id ", int{id->bytes[0]}); };
  if (comm == nullptr) {
    *next = Add(GroupOf(key_of_id(), size), rank);
    return kNcclInProgress;
  }
  const Part& part = PartOf(comm);
  const std::string key = absl::StrCat("grown ", reinterpret_cast<uint64_t>(part.group.get()));
  if (id != nullptr) {
    std::shared_ptr<Group>& by_id = groups_[key_of_id()];
    std::shared_ptr<Group>& by_parent = groups_[key];
    if (by_id == nullptr) by_id = by_parent;
    if (by_parent != nullptr && by_parent != by_id)
      violations_.push_back("in the stand-in the rank with the id grows before other members");
    by_parent = by_id;
  }
  *next = Add(GroupOf(key, size), part.rank);
  if (id != nullptr) groups_[key_of_id()] = groups_[key];
  return kNcclInProgress;
}

void FakeNccl::FillCollectives(NcclApi& api) {
  api.all_reduce = [this](const NcclArrays& arrays, NcclOp op, NcclComm comm, CuStream stream) {
    const auto run = [](const Call& call, int reduction) {
      const std::vector<std::byte> sum =
          Reduced(call.arrays, OpOf(reduction), 0, BytesOf(call.arrays.begin()->second));
      for (const auto& [rank, of_rank] : call.arrays)
        std::memcpy(of_rank.to, sum.data(), sum.size());
    };
    return Enqueue(comm, stream, absl::StrCat("all_reduce ", BytesOf(arrays)), arrays, run, op);
  };
  api.reduce_scatter = [this](const NcclArrays& arrays, NcclOp op, NcclComm comm, CuStream stream) {
    const auto run = [](const Call& call, int reduction) {
      const size_t num_bytes = BytesOf(call.arrays.begin()->second);
      std::vector<std::vector<std::byte>> pieces;
      for (const auto& [rank, of_rank] : call.arrays) {
        const size_t offset = static_cast<size_t>(rank) * num_bytes;
        pieces.push_back(Reduced(call.arrays, OpOf(reduction), offset, num_bytes));
      }
      for (const auto& [rank, of_rank] : call.arrays)
        std::memcpy(of_rank.to, pieces[static_cast<size_t>(rank)].data(), num_bytes);
    };
    return Enqueue(comm, stream, absl::StrCat("reduce_scatter ", BytesOf(arrays)), arrays, run, op);
  };
  api.all_gather = [this](const NcclArrays& arrays, NcclComm comm, CuStream stream) {
    const auto run = [](const Call& call, int /*none*/) {
      for (const auto& [rank, to] : call.arrays) {
        for (const auto& [other, from] : call.arrays) {
          const size_t num_bytes = BytesOf(from);
          std::memmove(static_cast<std::byte*>(to.to) + static_cast<size_t>(other) * num_bytes,
                       from.from,
                       num_bytes);
        }
      }
    };
    return Enqueue(comm, stream, absl::StrCat("all_gather ", BytesOf(arrays)), arrays, run, 0);
  };
  api.broadcast = [this](const NcclArrays& arrays, int root, NcclComm comm, CuStream stream) {
    const auto run = [](const Call& call, int from_rank) {
      const NcclArrays& from = call.arrays.at(from_rank);
      for (const auto& [rank, to] : call.arrays) std::memmove(to.to, from.from, BytesOf(from));
    };
    const std::string text = absl::StrCat("broadcast ", BytesOf(arrays), " from ", root);
    return Enqueue(comm, stream, text, arrays, run, root);
  };
}

NcclResult FakeNccl::Enqueue(NcclComm comm,
                             CuStream stream,
                             const std::string& text,
                             const NcclArrays& arrays,
                             void (*run)(const Call& call, int argument),
                             int argument) {
  const MutexLock lock(mu_);
  Part& part = PartOf(comm);
  Group& group = *part.group;
  if (part.num_calls == group.calls.size()) {
    auto call = std::make_shared<Call>();
    call->text = text;
    call->meeting = std::make_shared<Meeting>();
    call->meeting->num_streams = static_cast<size_t>(group.size);
    // The call outlives the meeting's work: the group has it.
    call->meeting->run = [run, argument, of = call.get()] { run(*of, argument); };
    group.calls.push_back(std::move(call));
  }
  Call& call = *group.calls[part.num_calls++];
  if (call.text != text)
    violations_.push_back(absl::StrCat("rank ", part.rank, ": ", text, " meets ", call.text));
  call.arrays[part.rank] = arrays;
  driver_.EnqueueMeeting(stream, text, call.meeting);
  return kNcclSuccess;
}

}  // namespace pushpull
