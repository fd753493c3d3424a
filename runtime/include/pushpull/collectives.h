// SPDX-License-Identifier: Apache-2.0
//
// Collectives let a job's workers agree on small and medium arrays, through its servers: metrics, a
// decision to stop, a vocabulary, a seed. Gradients use Job::PushPull. Messages are arrays that one
// worker sends to another.
//
//   double loss[2] = {sum, count};
//   absl::StatusOr<std::vector<WorkerId>> workers =
//       job->collectives().AllReduce(ValuesOf(std::span(loss)), Reduction::kSum, deadline);
//
// Every call belongs to a step: the one set by UseStep, otherwise the next one (Job::next_step).
// All contributors to that step make the same calls in the same order. A worker that joins takes
// part from its first step on, and nobody waits for a dead worker longer than the job needs to
// notice its death. All workers get the same bits, whatever the order of arrival and whichever
// server fails meanwhile.
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

// The values are part of messages between processes and never change; 6 stands for int8 elsewhere.
enum class ElementType : uint8_t {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kFloat16 = 7,   // IEEE 754 binary16; values above 65,504 become infinite
  kBFloat16 = 8,  // the upper half of a float32
};

// Maximum size, in bytes, of one array that a worker contributes.
constexpr uint64_t kCollectiveBytesMax = uint64_t{64} << 20;

// An array owned by the caller, in host byte order. `Byte` is std::byte or const std::byte.
template <typename Byte>
struct BasicArrayValues {
  ElementType type = ElementType::kUint8;
  std::span<Byte> bytes;  // a multiple of the element's size
};
using ArrayValues = BasicArrayValues<std::byte>;
using ConstArrayValues = BasicArrayValues<const std::byte>;

// Accepts float, double, int32_t, int64_t and uint8_t, const or not. For float16 and
// bfloat16, which C++ does not have, name the type: {ElementType::kBFloat16, bytes}.
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

// Maximum size of a message's label, which travels with its values.
constexpr size_t kMessageLabelBytesMax = 512;

// A message to another worker.
struct OutgoingMessage {
  ConstArrayValues values;
  WorkerId to;
  // For the receiver's program, e.g. how to interpret the values.
  std::string label = {};
};

// A message expected from another worker.
struct ExpectedMessage {
  WorkerId from;
  // Destination of the values, which must have its type and size. Unset: any type and size.
  std::optional<ArrayValues> into = {};
};

// A received message.
struct ReceivedMessage {
  ElementType type = ElementType::kUint8;
  std::vector<std::byte> bytes;  // empty if ExpectedMessage has `into`
  std::string label;             // the sender's
};

// Returned by Job::collectives() and valid as long as the Job. One call at a time, from any thread.
//
// Each call blocks until every worker of the step has made it, or `deadline` passes. Arrays are
// copied: none is used after the call has returned. Errors common to all calls:
//
// clang-format off
//   kDeadlineExceeded    another worker has not made the call yet, or a server does not answer.
//                        Call again with the same arguments, the array unchanged, to keep waiting.
//   kInvalidArgument     the workers' calls differ: names two workers and the call of each. Or an
//                        array whose size does not fit its element type, or a mean of integers.
//   kResourceExhausted   more than kCollectiveBytesMax bytes, or a server's limit for one worker.
//   kFailedPrecondition  before Job::Register; the mode is not Sync or has backup workers; another
//                        call is under way.
//   kUnavailable, kAborted, kCancelled  as for PushHandle::Wait.
// clang-format on
class Collectives {
 public:
  virtual ~Collectives() = default;

  // From now on calls belong to `step`, as the program counts; without a value, each call belongs
  // to the step that is next at that time. A loop that also makes calls after its pushes should set
  // the step at the beginning of each iteration: calls after the pushes of step t would otherwise
  // belong to step t + 1, and a worker that joins with that step would never make them. Steps must
  // not decrease.
  virtual void UseStep(std::optional<Step> step) = 0;

  // Returns once every worker has called it: the workers, ascending.
  virtual absl::StatusOr<std::vector<WorkerId>> Barrier(Deadline deadline) = 0;

  // Replaces `values` with the element-wise sum, mean, minimum or maximum over the workers,
  // computed in the order of the workers' indices. A mean is over workers, unweighted, and of
  // floating-point values only; sums of integers wrap around. float16 and bfloat16 are computed in
  // float32 and rounded once, at the end. A NaN in any array makes that element NaN. Returns the
  // workers that took part, ascending.
  virtual absl::StatusOr<std::vector<WorkerId>> AllReduce(ArrayValues values,
                                                          Reduction reduction,
                                                          Deadline deadline) = 0;

  // Returns the arrays of all workers, which must agree in size and type.
  virtual absl::StatusOr<GatheredValues> AllGather(ConstArrayValues values, Deadline deadline) = 0;

  // Replaces `values` with those of `root` or, without one, with those of the worker with the
  // lowest index. Size and type must be the same in all workers. Returns the workers that took
  // part, ascending.
  //
  //   kNotFound  `root` is not among the workers of this step.
  virtual absl::StatusOr<std::vector<WorkerId>> Broadcast(ArrayValues values,
                                                          std::optional<WorkerId> root,
                                                          Deadline deadline) = 0;

  // Sends a message to another worker, which calls Recv or SendRecv in the same step; no other
  // worker makes the call. Returns once the other worker's library has all values. Its program has
  // asked for them by then, so two workers that both Send to each other block until their
  // deadlines: use SendRecv instead. Messages from one worker to another arrive in the order in
  // which they were sent, independently of other pairs and of the opposite direction. After an
  // error the receiver may still have the message. Errors of Send, Recv and SendRecv, where they
  // differ from those above:
  //
  // clang-format off
  //   kDeadlineExceeded  the other worker has not made its call yet, or a server does not answer.
  //                      Call again with the same arguments, the array unchanged, to keep waiting.
  //   kInvalidArgument   the other worker is this one, or its index is invalid; `into` differs in
  //                      type or size from what is sent: names both, in both workers; the label is
  //                      too long; or the sender is already at a later message.
  //   kNotFound          the other worker is not among the workers of this step: it has left or
  //                      died, has not joined yet, or was replaced meanwhile.
  // clang-format on
  virtual absl::Status Send(const OutgoingMessage& message, Deadline deadline) = 0;
  virtual absl::StatusOr<ReceivedMessage> Recv(const ExpectedMessage& message,
                                               Deadline deadline) = 0;

  // Sends and receives at once, with the same worker or with two, e.g. to the next worker in a ring
  // and from the previous one: no worker has to receive before it sends. If one half fails, the
  // other is still awaited, and what it has received is dropped.
  virtual absl::StatusOr<ReceivedMessage> SendRecv(const OutgoingMessage& outgoing,
                                                   const ExpectedMessage& expected,
                                                   Deadline deadline) = 0;
};

}  // namespace pushpull
