// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_state.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_leases.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/master_values.h"
#include "runtime/tensor/reduce.h"
#include "runtime/tensor/reduction.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

// Sums of tensors begin at a cache line.
constexpr size_t kFloatsPerLine = HostBuffer::kAlignment / sizeof(float);

// The order in which gradients() has them.
constexpr ElementOp kOps[] = {ElementOp::kSum,
                              ElementOp::kMin,
                              ElementOp::kMax,
                              ElementOp::kProduct,
                              ElementOp::kAnd,
                              ElementOp::kOr};

// Of the gradients of a tensor, each multiplied by its weight if they have a mean.
ElementOp OpOn(const TensorSpec& tensor) {
  return tensor.reduction == Reduction::kMean ? ElementOp::kSum : OpOf(tensor.reduction);
}

std::vector<WorkerId> WorkersOf(std::span<const RingWorker> workers) {
  std::vector<WorkerId> ids;
  for (const RingWorker& worker : workers) ids.push_back(worker.worker);
  return ids;
}

// The same values as float32.
void CopyToMaster(DType dtype, std::span<const std::byte> from, std::span<float> values) {
  if (IsMaster(dtype)) {
    absl::c_copy(from, std::as_writable_bytes(values).begin());
  } else {
    Widen(dtype, from, values);
  }
}

// Of a checkpoint from a mode without common steps, everything that is left.
absl::StatusOr<SampleQueue> QueueIn(std::span<const std::byte> value, Step step) {
  if (!SampleLeases::AreIn(value)) return SampleQueue::Decode(value);
  PUSHPULL_ASSIGN_OR_RETURN(const SampleLeases leases, SampleLeases::Decode(value));
  return leases.ToQueue({}, step);
}

// Keeps the memory for as long as the buffer in it.
class SharedSums final : public MemoryLender {
 public:
  explicit SharedSums(std::shared_ptr<const SharedMemory> memory) : memory_(std::move(memory)) {}
  void TakeBack(std::span<std::byte> /*memory*/) override {}

 private:
  const std::shared_ptr<const SharedMemory> memory_;
};

}  // namespace

absl::StatusOr<RingState> RingState::Make(std::span<const PlacedTensor> tensors, Sums sums) {
  RingState state;
  for (const PlacedTensor& placed : tensors) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t bytes,
                              NumBytes(placed.spec.dims, MasterOf(placed.spec.dtype)));
    Tensor& tensor = state.tensors_.emplace_back();
    tensor.spec = placed.spec;
    tensor.first_chunk = placed.first_chunk;
    tensor.holds_samples = placed.spec.name == kSampleQueueTensor;
    PUSHPULL_ASSIGN_OR_RETURN(tensor.value, HostBuffer::Zeroed(bytes));
    PUSHPULL_ASSIGN_OR_RETURN(
        tensor.state, HostBuffer::Zeroed(bytes * StateFloatsPerValue(placed.spec.optimizer)));
  }
  size_t floats = 0;
  for (const ElementOp op : kOps) floats = state.Place(op, floats);
  const size_t sum_bytes = floats * sizeof(float);
  if (sums == Sums::kShared && sum_bytes > 0) {
    PUSHPULL_ASSIGN_OR_RETURN(state.shared_sums_, SharedMemory::Create("pushpull-sums", sum_bytes));
    state.sums_ = HostBuffer::Lent(state.shared_sums_->bytes(),
                                   std::make_shared<SharedSums>(state.shared_sums_));
  } else {
    PUSHPULL_ASSIGN_OR_RETURN(state.sums_, HostBuffer::Zeroed(sum_bytes));
  }
  state.updates_.resize(tensors.size());
  state.had_gradient_.resize(tensors.size(), 1);
  return state;
}

size_t RingState::Place(ElementOp op, size_t begin) {
  size_t end = begin;
  for (Tensor& tensor : tensors_) {
    if (tensor.holds_samples || OpOn(tensor.spec) != op) continue;
    tensor.offset = end;
    const size_t values = tensor.value.num_bytes() / sizeof(float);
    end += (values + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
  }
  if (end > begin) ends_.emplace_back(op, end);
  return end;
}

std::vector<RingGradients> RingState::gradients() {
  std::vector<RingGradients> all;
  size_t begin = 0;
  for (const auto& [op, end] : ends_) {
    all.push_back({.op = op, .values = sums_.floats().subspan(begin, end - begin)});
    begin = end;
  }
  return all;
}

void RingState::SetInitial(size_t tensor,
                           std::span<const std::byte> value,
                           std::span<const float> state,
                           uint64_t updates) {
  Tensor& own = tensors_[tensor];
  CopyToMaster(own.spec.dtype, value, own.value.floats());
  absl::c_copy(state, own.state.floats().begin());
  updates_[tensor] = updates;
}

absl::Status RingState::Begin(const RingMark& mark, std::span<const RingWorker> workers) {
  mark_ = mark;
  for (Tensor& tensor : tensors_) {
    if (!tensor.holds_samples) continue;
    PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, QueueIn(tensor.value.bytes(), mark.step));
    queue.SetMembers(WorkersOf(workers));
    absl::c_copy(queue.Encode(), tensor.value.bytes().begin());
  }
  return absl::OkStatus();
}

std::vector<std::span<std::byte>> RingState::CopyParts() {
  std::vector<std::span<std::byte>> parts = {std::as_writable_bytes(std::span(updates_)),
                                             std::as_writable_bytes(std::span(had_gradient_))};
  for (Tensor& tensor : tensors_) {
    parts.push_back(tensor.value.bytes());
    if (tensor.state.num_bytes() > 0) parts.push_back(tensor.state.bytes());
  }
  return parts;
}

void RingState::TakeCopy(const RingMark& mark) {
  mark_ = mark;
}

std::vector<RingState::ChunkPlace> RingState::chunks() const {
  std::vector<ChunkPlace> all;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const uint64_t bytes = tensor.value.num_bytes();
    const size_t state_floats = StateFloatsPerValue(tensor.spec.optimizer);
    for (uint64_t begin = 0; begin < bytes; begin += kChunkBytes) {
      const uint64_t of_chunk = std::min(kChunkBytes, bytes - begin);
      const uint64_t index = begin / kChunkBytes;
      all.push_back({.chunk = ChunkId{tensor.first_chunk.value() + index},
                     .tensor = i,
                     .index = index,
                     .value_bytes = of_chunk,
                     .state_bytes = of_chunk * state_floats});
    }
  }
  return all;
}

// A state is [StateFloatsPerValue, values], of the tensor as of the chunk.
void RingState::CopyChunk(const ChunkPlace& place,
                          std::span<float> value,
                          std::span<float> optimizer_state) const {
  const Tensor& tensor = tensors_[place.tensor];
  const size_t begin = place.index * kChunkBytes / sizeof(float);
  const std::span<const float> values = tensor.value.floats();
  absl::c_copy(values.subspan(begin, value.size()), value.begin());
  for (size_t row = 0; row < optimizer_state.size() / value.size(); ++row) {
    absl::c_copy(tensor.state.floats().subspan(row * values.size() + begin, value.size()),
                 optimizer_state.subspan(row * value.size(), value.size()).begin());
  }
}

void RingState::SetChunk(const ChunkPlace& place,
                         std::span<const float> value,
                         std::span<const float> optimizer_state,
                         uint64_t updates) {
  Tensor& tensor = tensors_[place.tensor];
  const size_t begin = place.index * kChunkBytes / sizeof(float);
  const std::span<float> values = tensor.value.floats();
  absl::c_copy(value, values.subspan(begin, value.size()).begin());
  for (size_t row = 0; row < optimizer_state.size() / value.size(); ++row) {
    absl::c_copy(optimizer_state.subspan(row * value.size(), value.size()),
                 tensor.state.floats().subspan(row * values.size() + begin, value.size()).begin());
  }
  // Of a tensor's first chunk: earlier values do not count.
  updates_[place.tensor] = place.index == 0 ? updates : std::max(updates_[place.tensor], updates);
}

uint64_t RingState::WriteValue(size_t tensor, std::span<std::byte> target) const {
  if (target.empty()) return 0;
  const Tensor& own = tensors_[tensor];
  if (!IsMaster(own.spec.dtype)) return Narrow(own.spec.dtype, own.value.floats(), target);
  absl::c_copy(own.value.bytes(), target.begin());
  return 0;
}

uint64_t RingState::Batch() const {
  for (const Tensor& tensor : tensors_) {
    if (!tensor.holds_samples) continue;
    const absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(tensor.value.bytes());
    return queue.ok() ? queue->batch() : 0;
  }
  return 0;
}

std::span<float> RingState::SumOf(const Tensor& tensor) {
  return sums_.floats().subspan(tensor.offset, tensor.value.num_bytes() / sizeof(float));
}

void RingState::Contribute(std::span<const RingPush> pushes,
                           uint32_t rank,
                           uint32_t ranks,
                           uint64_t batch) {
  PUSHPULL_CHECK(pushes.size() == tensors_.size());
  facts_.assign(WantsAt(ranks), 0);
  // Learning rates and the batch are those of rank 0.
  if (rank == 0) facts_[0] = static_cast<double>(batch);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const RingPush& push = pushes[i];
    if (rank == 0) facts_[RateAt(i)] = push.learning_rate;
    if (tensor.holds_samples) {
      facts_[WantsAt(rank)] = push.weight;
      continue;
    }
    facts_[WeightAt(i)] = push.weight;
    const std::span<float> sum = SumOf(tensor);
    const bool is_mean = tensor.spec.reduction == Reduction::kMean;
    // A contribution without samples does not count in a mean, whatever its values are.
    if (!push.has_gradient || (is_mean && push.weight == 0)) {
      FillIdentity(ElementKind::kFloat32, OpOn(tensor.spec), std::as_writable_bytes(sum));
    } else {
      facts_[GradientsAt(i)] = 1;
      CopyToMaster(tensor.spec.dtype, push.gradient, sum);
      if (is_mean && push.weight != 1) Scale(sum, static_cast<float>(push.weight));
    }
  }
}

// What does not count may be infinite: nobody has contributed to a minimum.
bool RingState::IsFinite(size_t index) {
  return tensors_[index].holds_samples || facts_[GradientsAt(index)] == 0 ||
         AllFinite(SumOf(tensors_[index]));
}

absl::Status RingState::CheckSums() {
  if (AllFinite(sums_.floats())) return absl::OkStatus();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (IsFinite(i)) continue;
    return absl::InvalidArgumentError(absl::StrCat("sum of the gradients of tensor \"",
                                                   tensors_[i].spec.name,
                                                   "\" in step ",
                                                   mark_.step.value(),
                                                   " has a value that is not finite"));
  }
  return absl::OkStatus();
}

absl::Status RingState::Apply(std::span<const RingWorker> workers, Epoch epoch) {
  PUSHPULL_RETURN_IF_ERROR(CheckSums());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].holds_samples) {
      PUSHPULL_RETURN_IF_ERROR(Divide(tensors_[i], facts_[RateAt(i)], workers));
    } else {
      ApplyTo(i);
    }
  }
  mark_ = {.made_in = epoch, .step = Step{mark_.step.value() + 1}};
  return absl::OkStatus();
}

void RingState::ApplyTo(size_t index) {
  Tensor& tensor = tensors_[index];
  const bool is_mean = tensor.spec.reduction == Reduction::kMean;
  const double weight = facts_[WeightAt(index)];
  had_gradient_[index] = facts_[GradientsAt(index)] > 0 ? 1 : 0;
  if (had_gradient_[index] == 0) {
    // The value of Sum is the step's gradient.
    if (tensor.spec.optimizer.kind == OptimizerKind::kSum && CountsAsZeros(tensor.spec.reduction))
      std::ranges::fill(tensor.value.floats(), 0.0F);
    return;
  }
  const double rate = facts_[RateAt(index)];
  const StepInput input = {.learning_rate = rate > 0 ? rate : tensor.spec.optimizer.learning_rate,
                           .step = ++updates_[index],
                           .gradient_scale = is_mean ? 1 / weight : 1};
  ApplyOptimizer(tensor.spec.optimizer,
                 input,
                 SumOf(tensor),
                 tensor.value.floats(),
                 tensor.value.floats(),
                 tensor.state.floats());
}

// All workers of the ring have contributed; a worker that contributes no samples wants no further
// ones.
absl::Status RingState::Divide(Tensor& samples,
                               double num_samples,
                               std::span<const RingWorker> workers) {
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, SampleQueue::Decode(samples.value.bytes()));
  std::vector<WorkerId> counted, next;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const SampleReport report = ReportOf(facts_[WantsAt(rank)]);
    if (AreDone(report)) counted.push_back(workers[rank].worker);
    if (WantsMore(report)) next.push_back(workers[rank].worker);
  }
  queue.SetNumSamples(num_samples);
  queue.Advance(counted, std::move(next));
  if (facts_[0] > 0) queue.SetGlobalBatch(static_cast<uint64_t>(facts_[0]));
  absl::c_copy(queue.Encode(), samples.value.bytes().begin());
  return absl::OkStatus();
}

}  // namespace pushpull
