// SPDX-License-Identifier: Apache-2.0
//
// Collectives: small and medium arrays that the workers of a job agree on, through its servers. For
// metrics, a decision to stop, a vocabulary, a seed; gradients go by Job::PushPull. And messages:
// arrays that one worker sends to another.
//
//   double loss[2] = {sum, count};
//   absl::StatusOr<std::vector<WorkerId>> workers =
//       job->collectives().AllReduce(ValuesOf(std::span(loss)), Reduction::kSum, deadline);
//
// Every call belongs to a step, and all who contribute to that step make the same calls in the same
// order: the step of UseStep, otherwise the next one (Job::next_step). A worker that joins takes
// part from its first step on, and one that dies is not waited for any longer than the job needs to
// notice. All workers get the same bits, whatever the order of arrival and
// whichever server fails meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"
#include "pushpull/ids.h"
#include "pushpull/tensor_spec.h"

namespace pushpull {

enum class ElementType : uint8_t {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
};

// Bytes of one array that a worker contributes, at most.
constexpr uint64_t kCollectiveBytesMax = uint64_t{64} << 20;

// An array of the caller's, host byte order. `Byte` is std::byte or const std::byte.
template <typename Byte>
struct BasicArrayValues {
  ElementType type = ElementType::kUint8;
  std::span<Byte> bytes;  // a multiple of the element's size
};
using ArrayValues = BasicArrayValues<std::byte>;
using ConstArrayValues = BasicArrayValues<const std::byte>;

// float, double, int32_t, int64_t and uint8_t, const or not.
template <typename Element>
auto ValuesOf(std::span<Element> values) {
  using Plain = std::remove_const_t<Element>;
  constexpr ElementType kType = std::is_same_v<Plain, float>     ? ElementType::kFloat32
                                : std::is_same_v<Plain, double>  ? ElementType::kFloat64
                                : std::is_same_v<Plain, int32_t> ? ElementType::kInt32
                                : std::is_same_v<Plain, int64_t> ? ElementType::kInt64
                                                                 : ElementType::kUint8;
  static_assert(kType != ElementType::kUint8 || std::is_same_v<Plain, uint8_t>);
  if constexpr (std::is_const_v<Element>) {
    return ConstArrayValues{kType, std::as_bytes(values)};
  } else {
    return ArrayValues{kType, std::as_writable_bytes(values)};
  }
}

// The arrays of all workers.
struct GatheredValues {
  std::vector<WorkerId> workers;  // ascending
  // workers.size() arrays, each as large as the caller's, in the order of `workers`.
  std::vector<std::byte> bytes;
};

// Of a message's label, which travels beside its values.
constexpr size_t kMessageLabelBytesMax = 512;

// What a worker sends to another one.
struct OutgoingMessage {
  ConstArrayValues values;
  WorkerId to;
  // For the receiver's program, e.g. how to read the values.
  std::string label = {};
};

// What a worker expects of another one.
struct ExpectedMessage {
  WorkerId from;
  // Where the values go, which then have its type and size. None: values of any type and size.
  std::optional<ArrayValues> into = {};
};

// What a worker has received.
struct ReceivedMessage {
  ElementType type = ElementType::kUint8;
  std::vector<std::byte> bytes;  // empty where ExpectedMessage has `into`
  std::string label;             // the sender's
};

// From Job::collectives(), valid as long as the job. One call at a time; from any thread.
//
// Each call blocks until every worker of the step has made it, or `deadline` passes. Arrays are
// copied, so that a call that has returned uses none. Errors of all of them:
//
// clang-format off
//   kDeadlineExceeded    another worker has not made the call yet, or a server does not answer. Call
//                        again with the same arguments, the array unchanged, to wait on.
//   kInvalidArgument     the workers' calls differ: names two workers and what each has called. Or an
//                        array of another size than its element type allows, or a mean of integers.
//   kResourceExhausted   more than kCollectiveBytesMax bytes, or a server's limit for one worker.
//   kFailedPrecondition  before Job::Register; the mode is not Sync or has backup workers; another
//                        call is under way.
//   kUnavailable, kAborted, kCancelled  as PushHandle::Wait.
// clang-format on
class Collectives {
 public:
  virtual ~Collectives() = default;

  // From now on calls belong to `step`, as the program counts; without one, to the next step of
  // each call. Name the step at the beginning of each iteration of a loop that calls after its
  // pushes, too: its calls after the pushes of step t would otherwise belong to step t + 1, and be
  // missing in a worker that joins with that step. Steps must not go back.
  virtual void UseStep(std::optional<Step> step) = 0;

  // Returns when every worker has called it: who they are, ascending.
  virtual absl::StatusOr<std::vector<WorkerId>> Barrier(Deadline deadline) = 0;

  // Replaces `values` by the element-wise sum, mean, minimum or maximum over the workers, added in
  // the order of the workers' indices. A mean is over workers, not weighted, and of floating point
  // values only; sums of integers wrap around. A NaN makes its element NaN. Returns who took part,
  // ascending.
  virtual absl::StatusOr<std::vector<WorkerId>> AllReduce(ArrayValues values,
                                                          Reduction reduction,
                                                          Deadline deadline) = 0;

  // The arrays of all workers, which have one size and type.
  virtual absl::StatusOr<GatheredValues> AllGather(ConstArrayValues values, Deadline deadline) = 0;

  // Replaces `values`, which has one size and type in all workers, by those of `root`; without one,
  // by those of the worker with the lowest index. Returns who took part, ascending.
  //
  //   kNotFound  `root` is not among the workers of this step.
  virtual absl::StatusOr<std::vector<WorkerId>> Broadcast(ArrayValues values,
                                                          std::optional<WorkerId> root,
                                                          Deadline deadline) = 0;

  // A message from this worker to another one, which calls Recv or SendRecv in the same step. Only
  // these two make the call. Returns when the other one's library has all values; its program has
  // asked for them by then, so two workers that both Send to each other wait for their deadlines:
  // call SendRecv. The messages of one worker to another arrive in the order in which they were
  // sent; those of other pairs, and of the opposite direction, are independent of them. After an
  // error the receiver may have the message. Errors of Send, Recv and SendRecv, where they differ
  // from those above:
  //
  // clang-format off
  //   kDeadlineExceeded  the other worker has not made its call yet, or a server does not answer. Call
  //                      again with the same arguments, the array unchanged, to wait on.
  //   kInvalidArgument   the other worker is this one, or its index cannot be one; `into` has another
  //                      type or size than what is sent: names both, in both workers; the label is
  //                      too long; or the sender is at a later message already.
  //   kNotFound          the other worker is not among the workers of this step: it has left or died,
  //                      has not joined yet, or was replaced meanwhile.
  // clang-format on
  virtual absl::Status Send(const OutgoingMessage& message, Deadline deadline) = 0;
  virtual absl::StatusOr<ReceivedMessage> Recv(const ExpectedMessage& message,
                                               Deadline deadline) = 0;

  // Both at once, with the same worker or with two, e.g. to the next one in a ring and from the one
  // before: no worker has to receive before it sends. Where one half fails, the other one is
  // awaited all the same, and what it has received is dropped.
  virtual absl::StatusOr<ReceivedMessage> SendRecv(const OutgoingMessage& outgoing,
                                                   const ExpectedMessage& expected,
                                                   Deadline deadline) = 0;
};

}  // namespace pushpull
