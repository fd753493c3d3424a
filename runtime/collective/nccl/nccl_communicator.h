// SPDX-License-Identifier: Apache-2.0
//
// Collectives by NCCL between ranks whose arrays are in GPU memory; NCCL chooses ring, tree or
// whatever suits the machine. Calls are put on a stream of the caller. No job uses it yet.
//
//   absl::StatusOr<NcclId> id = NewNcclId(*nccl);            // rank 0; passed to the others
//   const NcclGroup group{.id = *id, .rank = 1, .size = 4};
//   auto ranks = NcclCommunicator::Connect(nccl, device, group, deadline);
//   (*ranks)->AllReduce(stream, AsWritableBytes(gradient), ElementKind::kFloat32, ElementOp::kSum);
//   absl::Status done = (*ranks)->Wait(stream, deadline);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

#include "runtime/collective/nccl/nccl_api.h"
#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"
#include "runtime/device/device_stream.h"
#include "runtime/tensor/element_reduce.h"

namespace pushpull {

// kInternal or kFailedPrecondition, with NCCL's text.
absl::StatusOr<NcclId> NewNcclId(const NcclApi& nccl);

struct NcclGroup {
  NcclId id;
  uint32_t rank = 0;
  uint32_t size = 1;
};

// A rank's part of a communicator. Collectives are put on a stream and return at once, except for
// the first ones, for which NCCL connects the ranks: these take up to a minute, until all have made
// the call. Arrays are changed in place and must stay until the work is done, and all ranks make
// the same calls in the same order. Wait returns when the work is done.
//
// An error or an exceeded deadline breaks the communicator: every later call fails. Its work may
// stay on the stream until the communicator is shrunk or destroyed, which aborts it; so destroy it
// before the stream. Other ranks notice only that this one is gone. With Shrink, if the version has
// it, the remaining ranks continue. Texts name this rank and the operation.
//
//   kInvalidArgument     array, type or operation do not fit; leaves the communicator as it is
//   kDeadlineExceeded    other ranks did not arrive or did not answer in time
//   kUnavailable         a rank or the network has failed
//   kAborted             the GPU has failed, see DriverStatus
//   kFailedPrecondition  an earlier call has failed, with its error; or this NCCL does not fit
//   kUnimplemented       this version of NCCL has no such call
//   kInternal            NCCL reports incorrect use: a bug
//
// One call at a time. Thread-compatible. The destructor aborts unfinished work.
class NcclCommunicator {
 public:
  // All ranks of the group call it; blocks until they have, or `deadline` passes.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(
      std::shared_ptr<const NcclApi> nccl,
      std::shared_ptr<const Device> device,
      const NcclGroup& group,
      Deadline deadline);
  // A new rank of a communicator that others Grow: `group` has their id, the new size, and this
  // rank's number.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Join(
      std::shared_ptr<const NcclApi> nccl,
      std::shared_ptr<const Device> device,
      const NcclGroup& group,
      Deadline deadline);

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator();

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  // Every rank gets the element-wise reduction of all arrays. kMean, kSum, kMin, kMax and kProduct;
  // NCCL defines the minimum and maximum with a NaN. The bits depend on the algorithm that NCCL
  // chooses.
  absl::Status AllReduce(DeviceStream& stream,
                         DeviceSpan<std::byte> values,
                         ElementKind kind,
                         ElementOp op);
  // The array consists of as many equal pieces as there are ranks. Rank i gets piece i, reduced, in
  // its place; the other pieces become undefined.
  absl::Status ReduceScatter(DeviceStream& stream,
                             DeviceSpan<std::byte> values,
                             ElementKind kind,
                             ElementOp op);
  // Rank i has piece i of the array in its place; every rank gets all pieces.
  absl::Status AllGather(DeviceStream& stream, DeviceSpan<std::byte> values);
  absl::Status Broadcast(DeviceStream& stream, DeviceSpan<std::byte> values, uint32_t root);

  // Blocks until everything on the stream is done. Checks for failures of other ranks meanwhile.
  absl::Status Wait(DeviceStream& stream, Deadline deadline);

  // The communicator of the remaining ranks, which all call this with the same lost ranks, even
  // after an error. They are renumbered in their order. This communicator cannot be used any more.
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Shrink(std::span<const uint32_t> lost,
                                                           Deadline deadline);

  // The id for the new ranks of Grow: one rank requests it, and passes it to Grow.
  absl::StatusOr<NcclId> NewGrowId();
  // The communicator with `new_size` ranks, more than now; existing ranks keep their numbers. All
  // of them call this, the one that requested the id with it, and the new ones Join.
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Grow(uint32_t new_size,
                                                         const NcclId* id,
                                                         Deadline deadline);

 private:
  struct Part {
    std::shared_ptr<const NcclApi> nccl;
    std::shared_ptr<const Device> device;
    uint32_t rank;
    uint32_t size;
  };
  NcclCommunicator(const Part& part, NcclComm comm);

  // Starts a communicator with `start` and waits until it can be used.
  using Start = std::function<NcclResult(NcclComm*)>;
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> StartPart(const Part& part,
                                                                     absl::string_view call,
                                                                     const Start& start,
                                                                     Deadline deadline);
  using Work = std::function<NcclResult(CuStream)>;
  absl::Status Enqueue(DeviceStream& stream, const std::string& call, const Work& work);
  absl::StatusOr<size_t> PieceBytes(DeviceSpan<std::byte> values,
                                    size_t element_bytes,
                                    absl::string_view call) const;
  // Waits until NCCL's operation is no longer in progress.
  absl::Status WaitReady(absl::string_view call, Deadline deadline);
  absl::Status StatusOf(NcclResult result, absl::string_view call) const;
  absl::Status CheckUsable(absl::string_view call) const;
  // Remembers the first error, and returns the given one.
  absl::Status Break(const absl::Status& why);
  void Abort();

  const std::shared_ptr<const NcclApi> nccl_;
  const std::shared_ptr<const Device> device_;
  const uint32_t rank_;
  const uint32_t size_;
  NcclComm comm_;
  absl::Status broken_;
  std::string last_call_;  // the one that Wait waits for
};

}  // namespace pushpull
