// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// NCCL does not notify when a call of a non-blocking communicator is ready: it has to be polled.
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{5};
// How often a wait for work checks whether another rank has failed.
constexpr std::chrono::milliseconds kFailurePeriod{50};
// Putting the first call on a stream connects the ranks, which needs the others' participation.
constexpr std::chrono::seconds kEnqueueLimit{60};

void Pause(Deadline deadline) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  never.WaitUntil(mutex, deadline);
}

Deadline Earlier(Deadline a, Duration from_now) {
  return Deadline(std::min(a.when(), Deadline::After(from_now).when()));
}

std::optional<NcclType> TypeOf(ElementKind kind) {
  switch (kind) {
    case ElementKind::kUint8:
      return kNcclUint8;
    case ElementKind::kInt8:
      return kNcclInt8;
    case ElementKind::kInt32:
      return kNcclInt32;
    case ElementKind::kInt64:
      return kNcclInt64;
    case ElementKind::kFloat16:
      return kNcclFloat16;
    case ElementKind::kBFloat16:
      return kNcclBFloat16;
    case ElementKind::kFloat32:
      return kNcclFloat32;
    case ElementKind::kFloat64:
      return kNcclFloat64;
  }
  return std::nullopt;
}

std::optional<NcclOp> OpOf(ElementOp op) {
  switch (op) {
    case ElementOp::kMean:
      return kNcclMean;
    case ElementOp::kSum:
      return kNcclSum;
    case ElementOp::kMin:
      return kNcclMin;
    case ElementOp::kMax:
      return kNcclMax;
    case ElementOp::kProduct:
      return kNcclProduct;
    case ElementOp::kAnd:
    case ElementOp::kOr:
      break;
  }
  return std::nullopt;
}

struct NcclReduction {
  NcclType type;
  NcclOp op;
};

absl::StatusOr<NcclReduction> ReductionOf(ElementKind kind, ElementOp op) {
  const std::optional<NcclType> type = TypeOf(kind);
  const std::optional<NcclOp> reduction = OpOf(op);
  if (type.has_value() && reduction.has_value()) return NcclReduction{*type, *reduction};
  return absl::InvalidArgumentError(absl::StrCat(
      "NCCL has no ", ToString(kind), " ", ToString(op), ": take mean, sum, min, max or prod"));
}

absl::StatusCode CodeOf(NcclResult result) {
  switch (result) {
    case kNcclSuccess:
      return absl::StatusCode::kOk;
    case kNcclCudaError:
      return absl::StatusCode::kAborted;
    case kNcclSystemError:
    case kNcclRemoteError:
      return absl::StatusCode::kUnavailable;
    case kNcclTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    case kNcclInvalidArgument:
    case kNcclInvalidUsage:
    case kNcclInternalError:
    case kNcclInProgress:
      break;
  }
  return absl::StatusCode::kInternal;
}

const char* RemedyOf(NcclResult result) {
  switch (result) {
    case kNcclCudaError:
      return "the GPU failed or the driver does not fit; NCCL_DEBUG=WARN says more";
    case kNcclSystemError:
      return "the network or shared memory failed; NCCL_DEBUG=WARN says more";
    case kNcclRemoteError:
      return "another rank is gone: go on with those that are left";
    case kNcclInvalidUsage:
      return "two ranks may have one GPU, which needs NCCL_MULTI_RANK_GPU_ENABLE=1 and a version "
             "that "
             "has it; NCCL_DEBUG=WARN says more";
    default:
      return "NCCL_DEBUG=WARN says more";
  }
}

}  // namespace

absl::StatusOr<NcclId> NewNcclId(const NcclApi& nccl) {
  NcclId id;
  const NcclResult result = nccl.get_unique_id(&id);
  if (result == kNcclSuccess) return id;
  return absl::Status(
      CodeOf(result),
      absl::StrCat("ncclGetUniqueId: ", nccl.get_error_string(result), ": ", RemedyOf(result)));
}

NcclCommunicator::NcclCommunicator(const Part& part, NcclComm comm)
    : nccl_(part.nccl), device_(part.device), rank_(part.rank), size_(part.size), comm_(comm) {}

NcclCommunicator::~NcclCommunicator() {
  Abort();
}

void NcclCommunicator::Abort() {
  if (comm_ == nullptr) return;
  const DeviceScope scope(*device_);
  // Even if the communicator is intact: destroying it would wait for the other ranks.
  nccl_->abort(std::exchange(comm_, nullptr));
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::StartPart(
    const Part& part, absl::string_view call, const Start& start, Deadline deadline) {
  if (part.size == 0 || part.rank >= part.size) {
    return absl::InvalidArgumentError(
        absl::StrCat(call, ": no rank ", part.rank, " of ", part.size, ": they count from 0"));
  }
  const DeviceScope scope(*part.device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  NcclComm comm = nullptr;
  const NcclResult result = start(&comm);
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(part, comm));
  if (result != kNcclSuccess && result != kNcclInProgress)
    return communicator->StatusOf(result, call);
  PUSHPULL_RETURN_IF_ERROR(communicator->WaitReady(call, deadline));
  return communicator;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Connect(
    std::shared_ptr<const NcclApi> nccl,
    std::shared_ptr<const Device> device,
    const NcclGroup& group,
    Deadline deadline) {
  const Part part{std::move(nccl), std::move(device), group.rank, group.size};
  NcclConfig config;
  return StartPart(
      part,
      "connecting",
      [&](NcclComm* comm) {
        return part.nccl->init_rank(
            comm, static_cast<int>(group.size), group.id, static_cast<int>(group.rank), &config);
      },
      deadline);
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Join(
    std::shared_ptr<const NcclApi> nccl,
    std::shared_ptr<const Device> device,
    const NcclGroup& group,
    Deadline deadline) {
  const Part part{std::move(nccl), std::move(device), group.rank, group.size};
  if (!part.nccl->grow) {
    return absl::UnimplementedError(absl::StrCat(
        "joining: NCCL ", NcclVersionText(part.nccl->version), " cannot grow: connect all anew"));
  }
  NcclConfig config;
  return StartPart(
      part,
      "joining",
      [&](NcclComm* comm) {
        return part.nccl->grow(nullptr,
                               static_cast<int>(group.size),
                               &group.id,
                               static_cast<int>(group.rank),
                               comm,
                               &config);
      },
      deadline);
}

absl::Status NcclCommunicator::StatusOf(NcclResult result, absl::string_view call) const {
  if (result == kNcclSuccess) return absl::OkStatus();
  const char* detail = comm_ == nullptr ? nullptr : nccl_->get_last_error(comm_);
  std::string text = absl::StrCat(
      "rank ", rank_, " of ", size_, ": ", call, ": ", nccl_->get_error_string(result));
  if (detail != nullptr && *detail != '\0') absl::StrAppend(&text, " (", detail, ")");
  return absl::Status(CodeOf(result), absl::StrCat(text, ": ", RemedyOf(result)));
}

absl::Status NcclCommunicator::CheckUsable(absl::string_view call) const {
  if (broken_.ok() && comm_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ",
                   rank_,
                   " of ",
                   size_,
                   ": ",
                   call,
                   ": the communicator cannot be used: ",
                   broken_.ok() ? "it was shrunk or grown" : broken_.message()));
}

absl::Status NcclCommunicator::Break(const absl::Status& why) {
  if (broken_.ok()) broken_ = why;
  return why;
}

absl::Status NcclCommunicator::WaitReady(absl::string_view call, Deadline deadline) {
  Duration pause = kFirstPause;
  while (true) {
    NcclResult state = kNcclSuccess;
    const NcclResult asked = nccl_->get_async_error(comm_, &state);
    if (asked != kNcclSuccess) return Break(StatusOf(asked, call));
    if (state != kNcclInProgress)
      return state == kNcclSuccess ? absl::OkStatus() : Break(StatusOf(state, call));
    if (deadline.has_passed()) {
      return Break(absl::DeadlineExceededError(
          absl::StrCat("rank ",
                       rank_,
                       " of ",
                       size_,
                       ": ",
                       call,
                       ": not all ranks have come in time: check that each of them runs")));
    }
    Pause(Earlier(deadline, pause));
    pause = std::min<Duration>(2 * pause, kLongestPause);
  }
}

absl::Status NcclCommunicator::Enqueue(DeviceStream& stream,
                                       const std::string& call,
                                       const Work& work) {
  PUSHPULL_CHECK(stream.device() == device_);
  PUSHPULL_RETURN_IF_ERROR(CheckUsable(call));
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  last_call_ = call;
  const NcclResult result = work(stream.handle());
  if (result == kNcclInProgress) return WaitReady(call, Deadline::After(kEnqueueLimit));
  return result == kNcclSuccess ? absl::OkStatus() : Break(StatusOf(result, call));
}

absl::Status NcclCommunicator::AllReduce(DeviceStream& stream,
                                         DeviceSpan<std::byte> values,
                                         ElementKind kind,
                                         ElementOp op) {
  PUSHPULL_ASSIGN_OR_RETURN(const NcclReduction reduction, ReductionOf(kind, op));
  const std::string call = absl::StrCat("all-reduce of ", values.size(), " bytes");
  if (values.size() % ElementBytes(kind) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(call, ": not a whole number of elements of type ", ToString(kind)));
  }
  const NcclArrays arrays{
      values.data(), values.data(), values.size() / ElementBytes(kind), reduction.type};
  return Enqueue(stream, call, [&](CuStream handle) {
    return nccl_->all_reduce(arrays, reduction.op, comm_, handle);
  });
}

absl::StatusOr<size_t> NcclCommunicator::PieceBytes(DeviceSpan<std::byte> values,
                                                    size_t element_bytes,
                                                    absl::string_view call) const {
  const size_t piece_bytes = values.size() / size_;
  if (piece_bytes * size_ == values.size() && piece_bytes % element_bytes == 0) return piece_bytes;
  return absl::InvalidArgumentError(absl::StrCat("rank ",
                                                 rank_,
                                                 " of ",
                                                 size_,
                                                 ": ",
                                                 call,
                                                 ": not ",
                                                 size_,
                                                 " equal pieces of whole elements"));
}

absl::Status NcclCommunicator::ReduceScatter(DeviceStream& stream,
                                             DeviceSpan<std::byte> values,
                                             ElementKind kind,
                                             ElementOp op) {
  PUSHPULL_ASSIGN_OR_RETURN(const NcclReduction reduction, ReductionOf(kind, op));
  const std::string call = absl::StrCat("reduce-scatter of ", values.size(), " bytes");
  PUSHPULL_ASSIGN_OR_RETURN(const size_t piece_bytes, PieceBytes(values, ElementBytes(kind), call));
  const NcclArrays arrays{values.data(),
                          values.data() + rank_ * piece_bytes,
                          piece_bytes / ElementBytes(kind),
                          reduction.type};
  return Enqueue(stream, call, [&](CuStream handle) {
    return nccl_->reduce_scatter(arrays, reduction.op, comm_, handle);
  });
}

absl::Status NcclCommunicator::AllGather(DeviceStream& stream, DeviceSpan<std::byte> values) {
  const std::string call = absl::StrCat("all-gather of ", values.size(), " bytes");
  PUSHPULL_ASSIGN_OR_RETURN(const size_t piece_bytes, PieceBytes(values, 1, call));
  const NcclArrays arrays{
      values.data() + rank_ * piece_bytes, values.data(), piece_bytes, kNcclUint8};
  return Enqueue(
      stream, call, [&](CuStream handle) { return nccl_->all_gather(arrays, comm_, handle); });
}

absl::Status NcclCommunicator::Broadcast(DeviceStream& stream,
                                         DeviceSpan<std::byte> values,
                                         uint32_t root) {
  const std::string call = absl::StrCat("broadcast of ", values.size(), " bytes from rank ", root);
  if (root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank_, " of ", size_, ": ", call, ": there is no such rank"));
  }
  const NcclArrays arrays{values.data(), values.data(), values.size(), kNcclUint8};
  return Enqueue(stream, call, [&](CuStream handle) {
    return nccl_->broadcast(arrays, static_cast<int>(root), comm_, handle);
  });
}

absl::Status NcclCommunicator::Wait(DeviceStream& stream, Deadline deadline) {
  PUSHPULL_RETURN_IF_ERROR(CheckUsable("waiting"));
  PUSHPULL_ASSIGN_OR_RETURN(const Completion done, stream.Mark());
  while (true) {
    const absl::Status status = done.Wait(Earlier(deadline, kFailurePeriod));
    if (status.ok()) return absl::OkStatus();
    if (!absl::IsDeadlineExceeded(status)) return Break(status);
    NcclResult state = kNcclSuccess;
    nccl_->get_async_error(comm_, &state);
    if (state != kNcclSuccess && state != kNcclInProgress)
      return Break(StatusOf(state, last_call_));
    if (deadline.has_passed()) {
      return Break(absl::DeadlineExceededError(
          absl::StrCat("rank ",
                       rank_,
                       " of ",
                       size_,
                       ": ",
                       last_call_,
                       ": not done in time: another rank has not made the same call, or is gone")));
    }
  }
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Shrink(
    std::span<const uint32_t> lost, Deadline deadline) {
  const std::string call = absl::StrCat("shrinking without ", absl::StrJoin(lost, ", "));
  if (!nccl_->shrink) {
    return absl::UnimplementedError(absl::StrCat(call,
                                                 ": NCCL ",
                                                 NcclVersionText(nccl_->version),
                                                 " cannot: connect those that are left anew"));
  }
  std::vector<int> ranks;
  for (const uint32_t rank : lost) {
    if (rank >= size_ || rank == rank_) {
      return absl::InvalidArgumentError(
          absl::StrCat(call, ": rank ", rank, " is ", rank == rank_ ? "this one" : "none"));
    }
    ranks.push_back(static_cast<int>(rank));
  }
  if (comm_ == nullptr) return CheckUsable(call);
  const auto lower = std::count_if(lost.begin(), lost.end(), [&](uint32_t r) { return r < rank_; });
  const Part part{nccl_,
                  device_,
                  rank_ - static_cast<uint32_t>(lower),
                  size_ - static_cast<uint32_t>(lost.size())};
  NcclConfig config;
  auto next = StartPart(
      part,
      call,
      [&](NcclComm* comm) {
        return nccl_->shrink(
            comm_, ranks.data(), static_cast<int>(ranks.size()), comm, &config, kNcclShrinkAbort);
      },
      deadline);
  Abort();
  return next;
}

absl::StatusOr<NcclId> NcclCommunicator::NewGrowId() {
  PUSHPULL_RETURN_IF_ERROR(CheckUsable("growing"));
  if (!nccl_->get_grow_id) {
    return absl::UnimplementedError(absl::StrCat(
        "growing: NCCL ", NcclVersionText(nccl_->version), " cannot: connect all ranks anew"));
  }
  NcclId id;
  const NcclResult result = nccl_->get_grow_id(comm_, &id);
  if (result != kNcclSuccess) return StatusOf(result, "growing");
  return id;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Grow(uint32_t new_size,
                                                                         const NcclId* id,
                                                                         Deadline deadline) {
  const std::string call = absl::StrCat("growing to ", new_size, " ranks");
  PUSHPULL_RETURN_IF_ERROR(CheckUsable(call));
  if (!nccl_->grow) {
    return absl::UnimplementedError(absl::StrCat(
        call, ": NCCL ", NcclVersionText(nccl_->version), " cannot: connect all ranks anew"));
  }
  if (new_size <= size_)
    return absl::InvalidArgumentError(absl::StrCat(call, ": there are ", size_, " already"));
  NcclConfig config;
  auto next = StartPart(
      {nccl_, device_, rank_, new_size},
      call,
      [&](NcclComm* comm) {
        return nccl_->grow(comm_, static_cast<int>(new_size), id, -1, comm, &config);
      },
      deadline);
  Abort();
  return next;
}

}  // namespace pushpull
