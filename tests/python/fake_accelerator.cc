// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for a GPU in torch, as the device type privateuseone: its memory is memory of the
// host, and the CPU executes its work. It is as late as a GPU may be: a copy that does not block
// runs only when something waits for it. And it is strict: work must be ordered after what it reads
// and overwrites, and memory must stay until work on other streams is done. What a GPU would leave
// undefined raises RuntimeError, and so does everything after it.
//
// fake_accelerator.py compiles it, loads it and gives it the interface of torch.cuda.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorShape.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/library.h>

#if __has_include(<ATen/detail/PrivateUse1HooksInterface.h>)  // torch 2.1
#include <ATen/detail/PrivateUse1HooksInterface.h>
#define PUSHPULL_HAS_HOOKS 1
#endif

namespace pushpull {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

// Stream -> the newest of its pieces of work, which are numbered from 1, that is known to be done.
using Clock = std::map<int64_t, uint64_t>;

void Merge(Clock& into, const Clock& from) {
  for (const auto& [stream, number] : from) {
    into[stream] = std::max(into[stream], number);
  }
}

// Streams, their order, and what they use. Thread-safe.
class Timeline {
 public:
  static Timeline& Get() {
    static auto* timeline = new Timeline;  // memory is freed until the very end
    return *timeline;
  }

  int64_t NewStream() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(streams_.emplace(streams_.size(), Stream{}).first->first);
  }

  // An event holds what is done when it is reached.
  int64_t NewEvent() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(events_.emplace(events_.size(), Clock{}).first->first);
  }

  void Record(int64_t event, int64_t stream) {
    const std::lock_guard lock(mutex_);
    events_[event] = SeenBy(stream);
  }

  void WaitInStream(int64_t stream, int64_t event) {
    const std::lock_guard lock(mutex_);
    Merge(streams_[stream].seen, events_[event]);
  }

  void WaitForEvent(int64_t event) {
    const std::lock_guard lock(mutex_);
    const Clock reached = events_[event];
    Run(reached);
    Merge(host_, reached);
  }

  void WaitForStream(int64_t stream) {
    const std::lock_guard lock(mutex_);
    const Clock all = SeenBy(stream);
    Run(all);
    Merge(host_, all);
  }

  // Work that the CPU executes now, when everything before it is done.
  void Execute(int64_t stream,
               const std::set<void*>& reads,
               const std::set<void*>& writes,
               const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    AddWork(stream, reads, writes);
    Run(streams_[stream].seen);
    work();
  }

  // A copy of so many bytes that the CPU executes when something waits for it.
  void Postpone(int64_t stream,
                const std::set<void*>& reads,
                const std::set<void*>& writes,
                size_t num_bytes,
                std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    num_bytes_postponed_ += num_bytes;
    const uint64_t number = AddWork(stream, reads, writes);
    Stream& its = streams_[stream];
    its.postponed.push_back({number, its.seen, std::move(work)});
  }

  void* Allocate(size_t num_bytes, int64_t stream) {
    const std::lock_guard lock(mutex_);
    void* data = std::malloc(std::max<size_t>(num_bytes, 1));
    // What is read before it is written is a NaN.
    std::fill_n(static_cast<unsigned char*>(data), num_bytes, 0xff);
    memory_[data] = {.allocated_on = stream, .used = {}, .written = {}};
    return data;
  }

  // The next owner's work on the stream may begin at once.
  void Free(void* data) {
    const std::lock_guard lock(mutex_);
    const Memory freed = memory_.at(data);
    memory_.erase(data);
    const Clock seen = SeenBy(freed.allocated_on);
    for (const auto& [stream, number] : freed.used) {
      if (!IsSeen(seen, stream, number)) {
        Fault("memory was freed while stream " + std::to_string(stream) + " may still use it");
        return;  // without freeing it: that work may be run later
      }
    }
    std::free(data);
  }

  void Fault(const std::string& text) {
    const std::lock_guard lock(mutex_);
    fault_ = fault_.empty() ? text : fault_;  // the first is the cause
  }

  uint64_t num_copies_postponed() const { return num_postponed_; }
  uint64_t num_bytes_postponed() const { return num_bytes_postponed_; }

 private:
  struct Work {
    uint64_t number = 0;
    Clock after;
    std::function<void()> run;
  };
  struct Stream {
    uint64_t newest = 0;
    Clock seen;  // its next work begins when all of this is done
    std::deque<Work> postponed;
  };
  struct Memory {
    int64_t allocated_on = 0;
    Clock used;     // since it was written, and by that
    Clock written;  // by one stream
  };

  static bool IsSeen(const Clock& seen, int64_t stream, uint64_t number) {
    const auto found = seen.find(stream);
    return found != seen.end() && found->second >= number;
  }

  // What the host has waited for is done before anything that it enqueues.
  Clock SeenBy(int64_t stream) {
    Merge(streams_[stream].seen, host_);
    return streams_[stream].seen;
  }

  uint64_t AddWork(int64_t stream, const std::set<void*>& reads, const std::set<void*>& writes) {
    const Clock seen = SeenBy(stream);
    for (void* data : reads) {
      CheckSeen(stream, seen, memory_.at(data).written, "reads");
    }
    for (void* data : writes) {
      CheckSeen(stream, seen, memory_.at(data).used, "overwrites");
    }
    TORCH_CHECK(fault_.empty(), "fake accelerator: ", fault_);
    const uint64_t number = ++streams_[stream].newest;
    streams_[stream].seen[stream] = number;
    for (void* data : reads) {
      memory_.at(data).used[stream] = number;
    }
    for (void* data : writes) {
      memory_.at(data).written = memory_.at(data).used = {{stream, number}};
    }
    return number;
  }

  void CheckSeen(int64_t stream, const Clock& seen, const Clock& before, const char* verb) {
    for (const auto& [other, number] : before) {
      if (!IsSeen(seen, other, number)) {
        Fault("stream " + std::to_string(stream) + " " + verb + " memory that stream " +
              std::to_string(other) + " may still use: it has not waited for that");
      }
    }
  }

  void Run(const Clock& until) {
    for (const auto& [stream, number] : until) {
      std::deque<Work>& postponed = streams_[stream].postponed;
      while (!postponed.empty() && postponed.front().number <= number) {
        const Work work = std::move(postponed.front());
        postponed.pop_front();
        Run(work.after);
        work.run();
        ++num_postponed_;
      }
    }
  }

  std::recursive_mutex mutex_;  // work frees memory
  std::map<int64_t, Stream> streams_{{0, Stream{}}};
  std::map<int64_t, Clock> events_;
  std::map<void*, Memory> memory_;
  Clock host_;
  std::string fault_;
  uint64_t num_postponed_ = 0;
  uint64_t num_bytes_postponed_ = 0;
};

thread_local int64_t current_stream = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device /*device*/) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, std::exchange(current_stream, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event,
              const c10::Stream& stream,
              const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new int64_t(Timeline::Get().NewEvent());
    }
    Timeline::Get().Record(*static_cast<int64_t*>(*event), stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    Timeline::Get().WaitInStream(stream.id(), *static_cast<int64_t*>(event));
  }
  bool queryEvent(void* /*event*/) const override { return false; }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<int64_t*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

#ifdef PUSHPULL_HAS_HOOKS
struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
};
const bool has_hooks = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);
#endif

size_t BytesOf(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return 0;
    }
    last += (sizes[i] - 1) * strides[i];
  }
  return (last + 1) * c10::elementSize(dtype);
}

std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

c10::DataPtr Allocate(size_t num_bytes) {
  void* data = Timeline::Get().Allocate(num_bytes, current_stream);
  return {data, data, +[](void* its) { Timeline::Get().Free(its); }, kDevice};
}

at::Tensor NewTensor(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  const size_t num_bytes = BytesOf(sizes, strides, dtype);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                             num_bytes,
                                                             Allocate(num_bytes),
                                                             /*allocator=*/nullptr,
                                                             /*resizable=*/false));
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                               c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                               c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// Of results whose shape is not known when they are created: nothing has been written yet.
const at::Tensor& Resize(const at::Tensor& self,
                         at::IntArrayRef sizes,
                         c10::optional<c10::MemoryFormat> /*format*/) {
  const std::vector<int64_t> strides = ContiguousStrides(sizes);
  const size_t num_bytes = BytesOf(sizes, strides, self.scalar_type());
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (storage->nbytes() < num_bytes) {
    TORCH_CHECK(storage->nbytes() == 0, "fake accelerator: memory with values grows");
    storage->set_data_ptr(Allocate(num_bytes));
    storage->set_nbytes(num_bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor EmptyStrided(at::IntArrayRef sizes,
                        at::IntArrayRef strides,
                        c10::optional<c10::ScalarType> dtype,
                        c10::optional<c10::Layout> /*layout*/,
                        c10::optional<c10::Device> /*device*/,
                        c10::optional<bool> /*pin*/) {
  return NewTensor(
      sizes, strides, dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype())));
}

at::Tensor Empty(at::IntArrayRef sizes,
                 c10::optional<c10::ScalarType> dtype,
                 c10::optional<c10::Layout> layout,
                 c10::optional<c10::Device> device,
                 c10::optional<bool> pin,
                 c10::optional<c10::MemoryFormat> /*format*/) {
  return EmptyStrided(sizes, ContiguousStrides(sizes), dtype, layout, device, pin);
}

bool IsOnDevice(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

void* MemoryOf(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().get();
}

// A tensor of the CPU in the same memory.
at::Tensor OnCpu(const at::Tensor& tensor) {
  auto* data = static_cast<char*>(MemoryOf(tensor)) +
               tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  return at::from_blob(
      data, tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.scalar_type()));
}

void Write(const at::Tensor& to, const at::Tensor& computed) {
  Timeline::Get().Execute(current_stream, {}, {MemoryOf(to)}, [&] { OnCpu(to).copy_(computed); });
}

at::Tensor ToDevice(const at::Tensor& computed) {
  at::Tensor moved = NewTensor(computed.sizes(), computed.strides(), computed.scalar_type());
  Write(moved, computed);
  return moved;
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Timeline& timeline = Timeline::Get();
  std::set<void*> reads;
  std::set<void*> writes;
  if (IsOnDevice(from)) {
    reads.insert(MemoryOf(from));
  }
  if (IsOnDevice(to)) {
    writes.insert(MemoryOf(to));
  }
  const at::Tensor source = IsOnDevice(from) ? OnCpu(from) : from;
  const at::Tensor target = IsOnDevice(to) ? OnCpu(to) : to;
  if (IsOnDevice(from) && IsOnDevice(to)) {
    timeline.Execute(current_stream, reads, writes, [&] { target.copy_(source); });
    return to;
  }
  if (!non_blocking) {
    timeline.Execute(current_stream, reads, writes, [&] { target.copy_(source); });
    timeline.WaitForStream(current_stream);
    return to;
  }
  // A GPU does not keep the host's memory allocated.
  const at::Tensor& host = IsOnDevice(from) ? to : from;
  auto* storage = host.storage().unsafeGetStorageImpl();
  const auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  const at::Tensor its = at::from_blob(
      host.data_ptr(), host.sizes(), host.strides(), at::TensorOptions().dtype(host.scalar_type()));
  const at::Tensor other = IsOnDevice(from) ? source : target;
  timeline.Postpone(current_stream, reads, writes, host.nbytes(), [=, to_host = IsOnDevice(from)] {
    if (weak.expired()) {
      Timeline::Get().Fault("memory of the host was freed before a copy was done");
    } else {
      (to_host ? its : other).copy_(to_host ? other : its);
    }
  });
  return to;
}

// The arguments of an operation, as the CPU has them.
class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
    const size_t first = stack->size() - schema.arguments().size();
    originals_.assign(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    for (size_t i = 0; i < originals_.size(); ++i) {
      (*stack)[first + i] = Take(originals_[i], schema.arguments()[i].alias_info());
    }
  }

  const c10::IValue& original(size_t i) const { return originals_[i]; }
  const std::set<void*>& reads() const { return reads_; }
  const std::set<void*>& writes() const { return writes_; }

  // Results whose shape the operation has found.
  void WriteResized() const {
    for (const auto& [tensor, computed] : resized_) {
      Write(Resize(tensor, computed.sizes(), c10::nullopt), computed);
    }
  }

 private:
  c10::IValue Take(const c10::IValue& value, const c10::AliasInfo* alias) {
    if (value.isTensor()) {
      return Take(value.toTensor(), alias);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> taken;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        taken.push_back(Take(tensor, alias));
      }
      return taken;
    }
    if (value.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> taken;
      for (const c10::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        taken.push_back(tensor ? c10::optional<at::Tensor>(Take(*tensor, alias)) : c10::nullopt);
      }
      return taken;
    }
    return value.isDevice() ? c10::IValue(c10::Device(c10::DeviceType::CPU)) : value;
  }

  at::Tensor Take(const at::Tensor& tensor, const c10::AliasInfo* alias) {
    if (!IsOnDevice(tensor)) {
      return tensor;
    }
    const bool is_written = alias != nullptr && alias->isWrite();
    (is_written ? writes_ : reads_).insert(MemoryOf(tensor));
    if (is_written && tensor.numel() == 0) {
      return resized_.emplace_back(tensor, at::empty({0}, tensor.scalar_type())).second;
    }
    return OnCpu(tensor);
  }

  std::vector<c10::IValue> originals_;
  std::set<void*> reads_;
  std::set<void*> writes_;
  std::vector<std::pair<at::Tensor, at::Tensor>> resized_;  // by the operation, if at all
};

// A result on the device: one of the arguments, or new.
c10::IValue Return(const c10::IValue& computed,
                   const c10::AliasInfo* alias,
                   const c10::FunctionSchema& schema,
                   const Arguments& arguments) {
  if (alias != nullptr) {
    const auto same = std::find_if(
        schema.arguments().begin(), schema.arguments().end(), [&](const c10::Argument& argument) {
          return argument.alias_info() != nullptr && *argument.alias_info() == *alias;
        });
    TORCH_CHECK(alias->isWrite() && same != schema.arguments().end(),
                "fake accelerator: a view: ",
                schema.name());
    return arguments.original(same - schema.arguments().begin());
  }
  if (computed.isTensor()) {
    return computed.toTensor().defined() ? ToDevice(computed.toTensor()) : computed;
  }
  if (computed.isTensorList()) {
    c10::List<at::Tensor> moved;
    for (const at::Tensor& tensor : computed.toTensorVector()) {
      moved.push_back(ToDevice(tensor));
    }
    return moved;
  }
  Timeline::Get().WaitForStream(current_stream);  // the host knows the number
  return computed;
}

// Any other operation: that of the CPU, in the same memory.
void Compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const Arguments arguments(schema, stack);
  Timeline::Get().Execute(current_stream, arguments.reads(), arguments.writes(), [&] {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  });
  arguments.WriteResized();
  const size_t first = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    value = Return(value, schema.returns()[i].alias_info(), schema, arguments);
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Compute>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", Empty);
  m.impl("empty_strided", EmptyStrided);
  m.impl("resize_", Resize);
  m.impl("_copy_from", CopyFrom);
  m.impl("as_strided",
         [](const at::Tensor& self,
            at::IntArrayRef sizes,
            at::IntArrayRef strides,
            c10::optional<int64_t> offset) {
           return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
         });
  m.impl("view", [](const at::Tensor& self, at::IntArrayRef sizes) {
    return at::native::view(self, sizes);
  });
  m.impl("_reshape_alias",
         [](const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
           return at::native::_reshape_alias(self, sizes, strides);
         });
}

TORCH_LIBRARY(fake_accelerator, m) {
  m.def("new_stream() -> int", [] { return Timeline::Get().NewStream(); });
  m.def("new_event() -> int", [] { return Timeline::Get().NewEvent(); });
  m.def("current_stream() -> int", [] { return current_stream; });
  m.def("set_stream(int stream) -> ()", [](int64_t stream) { current_stream = stream; });
  m.def("record(int event, int stream) -> ()",
        [](int64_t event, int64_t stream) { Timeline::Get().Record(event, stream); });
  m.def("wait_in_stream(int stream, int event) -> ()",
        [](int64_t stream, int64_t event) { Timeline::Get().WaitInStream(stream, event); });
  m.def("wait_for_event(int event) -> ()",
        [](int64_t event) { Timeline::Get().WaitForEvent(event); });
  m.def("wait_for_stream(int stream) -> ()",
        [](int64_t stream) { Timeline::Get().WaitForStream(stream); });
  m.def("num_copies_postponed() -> int",
        [] { return static_cast<int64_t>(Timeline::Get().num_copies_postponed()); });
  m.def("num_bytes_postponed() -> int",
        [] { return static_cast<int64_t>(Timeline::Get().num_bytes_postponed()); });
}

}  // namespace
}  // namespace pushpull
