// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_cuda_driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/device/cuda/kernel_args.h"
#include "runtime/device/cuda/kernel_bodies.h"

namespace pushpull {
namespace {

constexpr std::array<std::byte, 16> kFakeImage = {std::byte{0x46}, std::byte{0x41}};
constexpr std::byte kFreshMemory{0xA5};
constexpr uint64_t kThreadsMax = 1 << 22;  // of a launch here: more take too long

// A kernel that the stand-in runs: the bytes of its arguments, and all threads of a launch.
struct HostKernel {
  const char* name;
  size_t args_bytes;
  void (*run)(const std::byte* args, uint64_t num_threads);
};

template <typename Kernel, typename Args>
HostKernel MakeHostKernel() {
  return {Args::kName, sizeof(Args), [](const std::byte* bytes, uint64_t num_threads) {
            Args args;
            std::memcpy(&args, bytes, sizeof args);
            for (uint64_t thread = 0; thread < num_threads; ++thread)
              RunKernel<Kernel>(args, KernelThread{thread, num_threads});
          }};
}

const std::array kHostKernels = {
    MakeHostKernel<CopyKernel, CopyArgs>(),
    MakeHostKernel<AddScaledKernel, AddScaledArgs>(),
    MakeHostKernel<MinimumKernel, MinimumArgs>(),
    MakeHostKernel<MaximumKernel, MaximumArgs>(),
    MakeHostKernel<ScaleKernel, ScaleArgs>(),
    MakeHostKernel<CheckFiniteKernel, CheckFiniteArgs>(),
    MakeHostKernel<EncodeFloat16Kernel, EncodeFloat16Args>(),
    MakeHostKernel<EncodeBFloat16Kernel, EncodeBFloat16Args>(),
    MakeHostKernel<DecodeFloat16Kernel, DecodeFloat16Args>(),
    MakeHostKernel<DecodeBFloat16Kernel, DecodeBFloat16Args>(),
    MakeHostKernel<UpdateSumKernel, UpdateSumArgs>(),
    MakeHostKernel<UpdateSgdKernel, UpdateSgdArgs>(),
    MakeHostKernel<UpdateMomentumKernel, UpdateMomentumArgs>(),
    MakeHostKernel<UpdateAdagradKernel, UpdateAdagradArgs>(),
    MakeHostKernel<UpdateAdamKernel, UpdateAdamArgs>(),
};

// Handles are numbers that look like pointers.
template <typename Pointer>
Pointer HandleOf(uint64_t number) {
  return reinterpret_cast<Pointer>(number);  // NOLINT(performance-no-int-to-ptr): never read
}

template <typename Pointer>
uint64_t NumberOf(Pointer handle) {
  return reinterpret_cast<uint64_t>(handle);
}

std::byte* MemoryAt(CuDevicePtr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers
  return reinterpret_cast<std::byte*>(address);
}

bool Overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

const char* NameOfResult(CuResult result) {
  switch (result) {
    case kCuOutOfMemory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case kCuInvalidValue:
      return "CUDA_ERROR_INVALID_VALUE";
    case kCuInvalidHandle:
      return "CUDA_ERROR_INVALID_HANDLE";
    case kCuInvalidImage:
      return "CUDA_ERROR_INVALID_IMAGE";
    case kCuNotFound:
      return "CUDA_ERROR_NOT_FOUND";
    case kCuNotReady:
      return "CUDA_ERROR_NOT_READY";
    case kCuIllegalAddress:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    default:
      return nullptr;
  }
}

}  // namespace

std::span<const std::byte> FakeCudaDriver::KernelImage() {
  return kFakeImage;
}

FakeCudaDriver::~FakeCudaDriver() {
  RunWork();
}

std::shared_ptr<const DriverApi> FakeCudaDriver::api() {
  auto api = std::make_shared<DriverApi>();
  FillDeviceApi(*api);
  FillMemoryApi(*api);
  FillPinnedApi(*api);
  FillCopyApi(*api);
  FillStreamApi(*api);
  FillEventApi(*api);
  FillTimeApi(*api);
  FillModuleApi(*api);
  return api;
}

void FakeCudaDriver::HoldWork(bool is_held) {
  const MutexLock lock(mu_);
  is_held_ = is_held;
}

void FakeCudaDriver::RunWork() {
  const MutexLock lock(mu_);
  RunAll();
}

void FakeCudaDriver::FailNext(const std::string& function, CuResult result) {
  const MutexLock lock(mu_);
  failures_[function] = result;
}

void FakeCudaDriver::FailWork(CuResult result) {
  const MutexLock lock(mu_);
  next_work_ = result;
}

std::vector<std::string> FakeCudaDriver::work_log() const {
  const MutexLock lock(mu_);
  return work_log_;
}

std::vector<std::string> FakeCudaDriver::violations() const {
  const MutexLock lock(mu_);
  return violations_;
}

std::vector<std::string> FakeCudaDriver::leftovers() const {
  const MutexLock lock(mu_);
  size_t num_contexts = 0;
  for (const auto& [device, count] : contexts_) num_contexts += static_cast<size_t>(count);
  size_t num_current = 0;
  for (const auto& [thread, stack] : current_) num_current += stack.size();
  std::vector<std::string> left;
  for (const auto& [count, what] : {std::pair{device_memory_.size(), "buffers"},
                                    std::pair{pinned_memory_.size(), "pinned buffers"},
                                    std::pair{streams_.size(), "streams"},
                                    std::pair{events_.size(), "events"},
                                    std::pair{modules_.size(), "modules"},
                                    std::pair{num_contexts, "contexts"},
                                    std::pair{num_current, "current contexts"}}) {
    if (count > 0) left.push_back(absl::StrCat(count, " ", what));
  }
  return left;
}

void FakeCudaDriver::Note(const std::string& violation) {
  violations_.push_back(violation);
}

CuResult FakeCudaDriver::Begin(const std::string& function, bool needs_context) {
  if (!is_initialized_) Note(absl::StrCat(function, " before init"));
  if (needs_context && current_[std::this_thread::get_id()].empty())
    Note(absl::StrCat(function, " without a current context"));
  const auto failure = failures_.find(function);
  if (failure != failures_.end()) {
    const CuResult result = failure->second;
    failures_.erase(failure);
    return result;
  }
  return broken_;
}

CuResult FakeCudaDriver::Enqueue(uint64_t stream, Operation operation) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return kCuInvalidHandle;
  found->second.push_back(std::move(operation));
  return kCuSuccess;
}

void FakeCudaDriver::RunStream(uint64_t stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || is_held_ || !running_.insert(stream).second) return;
  std::deque<Operation>& operations = found->second;
  while (!operations.empty() && broken_ == kCuSuccess) {
    const Operation& next = operations.front();
    if (next.meeting != nullptr && !Meet(stream, *next.meeting)) break;
    const Operation operation = std::move(operations.front());
    operations.pop_front();
    if (next_work_ != kCuSuccess) {
      broken_ = std::exchange(next_work_, kCuSuccess);
      break;
    }
    if (operation.waits_for != nullptr && !operation.waits_for->is_reached)
      RunStream(operation.waits_for->stream);
    ++tick_;
    work_log_.push_back(absl::StrCat("stream ", stream, ": ", operation.text));
    if (operation.run) operation.run();
    if (operation.reaches != nullptr) {
      operation.reaches->is_reached = true;
      operation.reaches->tick = tick_;
    }
  }
  running_.erase(stream);
}

bool FakeCudaDriver::Meet(uint64_t stream, Meeting& meeting) {
  if (meeting.is_over) return true;
  meeting.arrived.insert(stream);
  // The GPU runs other streams at the same time; they may come to it, too.
  if (meeting.arrived.size() < meeting.num_streams) RunAll();
  if (meeting.arrived.size() < meeting.num_streams) return false;
  if (!meeting.is_over) meeting.run();
  meeting.is_over = true;
  return true;
}

void FakeCudaDriver::EnqueueMeeting(CuStream stream,
                                    std::string text,
                                    std::shared_ptr<Meeting> meeting) {
  const MutexLock lock(mu_);
  if (Enqueue(NumberOf(stream), {.text = std::move(text), .meeting = std::move(meeting)}) !=
      kCuSuccess) {
    Note("a collective on a stream that is none");
  }
}

bool FakeCudaDriver::CancelMeeting(Meeting& meeting) {
  const MutexLock lock(mu_);
  return !std::exchange(meeting.is_over, true);
}

void FakeCudaDriver::RunAll() {
  for (const auto& [stream, operations] : streams_) RunStream(stream);
}

void FakeCudaDriver::ExpectIn(const std::map<const std::byte*, Allocation>& allocations,
                              const Range& range,
                              const std::string& what) {
  auto after = allocations.upper_bound(range.data);
  if (after != allocations.begin()) {
    const auto& [begin, allocation] = *std::prev(after);
    if (range.data + range.num_bytes <= begin + allocation.num_bytes) return;
  }
  Note(absl::StrCat(what, " of ", range.num_bytes, " bytes outside of what is allocated"));
}

void FakeCudaDriver::FillDeviceApi(DriverApi& api) {
  api.init = [this](unsigned /*flags*/) {
    const MutexLock lock(mu_);
    is_initialized_ = true;
    return Begin("init", false);
  };
  api.driver_get_version = [](int* version) {
    *version = 13000;
    return CuResult{kCuSuccess};
  };
  api.get_error_name = [](CuResult result, const char** name) {
    *name = NameOfResult(result);
    return *name == nullptr ? CuResult{kCuInvalidValue} : CuResult{kCuSuccess};
  };
  api.get_error_string = [](CuResult result, const char** text) {
    *text = NameOfResult(result) == nullptr ? nullptr : "as the stand-in says";
    return CuResult{kCuSuccess};
  };
  api.device_get_count = [this](int* count) {
    const MutexLock lock(mu_);
    *count = kNumGpus;
    return Begin("device_get_count", false);
  };
  api.device_get = [this](CuDevice* device, int ordinal) {
    const MutexLock lock(mu_);
    *device = ordinal;
    return Begin("device_get", false);
  };
  api.device_get_name = [](char* name, int num_bytes, CuDevice /*device*/) {
    std::strncpy(name, "Stand-in", static_cast<size_t>(num_bytes));
    return CuResult{kCuSuccess};
  };
  api.device_total_memory = [](size_t* num_bytes, CuDevice /*device*/) {
    *num_bytes = kMemoryBytes;
    return CuResult{kCuSuccess};
  };
  api.device_get_attribute = [](int* value, CuAttribute attribute, CuDevice /*device*/) {
    *value = attribute == kCuMajor ? 9 : attribute == kCuMinor ? 0 : 132;
    return CuResult{kCuSuccess};
  };
  api.primary_context_retain = [this](CuContext* context, CuDevice device) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("primary_context_retain", false);
    if (result != kCuSuccess) return result;
    ++contexts_[device];
    *context = HandleOf<CuContext>(static_cast<uint64_t>(device) + 1);
    return result;
  };
  api.primary_context_release = [this](CuDevice device) {
    const MutexLock lock(mu_);
    if (--contexts_[device] < 0) Note("context released more often than retained");
    return CuResult{kCuSuccess};
  };
  api.context_push_current = [this](CuContext context) {
    const MutexLock lock(mu_);
    const CuDevice device = static_cast<CuDevice>(NumberOf(context)) - 1;
    if (contexts_[device] <= 0) Note("a context made current that is released");
    current_[std::this_thread::get_id()].push_back(device);
    return CuResult{kCuSuccess};
  };
  api.context_pop_current = [this](CuContext* /*context*/) {
    const MutexLock lock(mu_);
    current_[std::this_thread::get_id()].pop_back();
    return CuResult{kCuSuccess};
  };
}

void FakeCudaDriver::FillMemoryApi(DriverApi& api) {
  api.memory_get_info = [this](size_t* free_bytes, size_t* total_bytes) {
    const MutexLock lock(mu_);
    *total_bytes = kMemoryBytes;
    *free_bytes = kMemoryBytes;
    for (const auto& [data, allocation] : device_memory_) *free_bytes -= allocation.num_bytes;
    return Begin("memory_get_info", true);
  };
  api.memory_allocate = [this](CuDevicePtr* address, size_t num_bytes) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("memory_allocate", true);
    if (result != kCuSuccess) return result;
    size_t used = 0;
    for (const auto& [data, allocation] : device_memory_) used += allocation.num_bytes;
    if (used + num_bytes > kMemoryBytes) return CuResult{kCuOutOfMemory};
    // new aligns to 16 bytes, which is enough for vectors.
    auto memory = std::make_unique<std::byte[]>(num_bytes);
    std::memset(memory.get(), static_cast<int>(kFreshMemory), num_bytes);
    *address = reinterpret_cast<CuDevicePtr>(memory.get());
    const std::byte* data = memory.get();
    device_memory_[data] = {std::move(memory), num_bytes};
    return result;
  };
  api.memory_free = [this](CuDevicePtr address) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("memory_free", true);
    // As CUDA does: it waits for all work of the GPU.
    is_held_ = false;
    RunAll();
    if (device_memory_.erase(MemoryAt(address)) == 0) Note("memory freed that is not allocated");
    return result;
  };
}

// Freed memory that work of a stream would still touch.
void FakeCudaDriver::ExpectUntouched(const Range& freed) {
  if (broken_ != kCuSuccess) return;
  for (const auto& [stream, operations] : streams_) {
    for (const Operation& operation : operations) {
      const bool is_touched =
          std::any_of(operation.touches.begin(), operation.touches.end(), [&](const Range& range) {
            return Overlap(range.data, range.num_bytes, freed.data, freed.num_bytes);
          });
      if (is_touched)
        Note(absl::StrCat("pinned memory freed before ", operation.text, " of stream ", stream));
    }
  }
}

void FakeCudaDriver::FillPinnedApi(DriverApi& api) {
  api.host_allocate = [this](void** data, size_t num_bytes, unsigned /*flags*/) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("host_allocate", true);
    if (result != kCuSuccess) return result;
    auto memory = std::make_unique<std::byte[]>(num_bytes);
    std::memset(memory.get(), static_cast<int>(kFreshMemory), num_bytes);
    *data = memory.get();
    const std::byte* begin = memory.get();
    pinned_memory_[begin] = {std::move(memory), num_bytes};
    return result;
  };
  api.host_free = [this](void* data) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("host_free", true);
    const auto found = pinned_memory_.find(static_cast<const std::byte*>(data));
    if (found == pinned_memory_.end()) {
      Note("pinned memory freed that is not allocated");
      return result;
    }
    ExpectUntouched({found->first, found->second.num_bytes});
    pinned_memory_.erase(found);
    return result;
  };
}

void FakeCudaDriver::FillCopyApi(DriverApi& api) {
  api.copy_to_device = [this](CuDevicePtr to, const void* from, size_t num_bytes, CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("copy_to_device", true);
    if (result != kCuSuccess) return result;
    const Range source{static_cast<const std::byte*>(from), num_bytes};
    ExpectIn(device_memory_, {MemoryAt(to), num_bytes}, "copy to device memory");
    ExpectIn(pinned_memory_, source, "copy from pinned memory");
    return Enqueue(NumberOf(stream),
                   {.text = absl::StrCat("copy_to_device ", num_bytes),
                    .run = [=] { std::memcpy(MemoryAt(to), from, num_bytes); },
                    .touches = {source}});
  };
  api.copy_to_host = [this](void* to, CuDevicePtr from, size_t num_bytes, CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("copy_to_host", true);
    if (result != kCuSuccess) return result;
    const Range target{static_cast<const std::byte*>(to), num_bytes};
    ExpectIn(device_memory_, {MemoryAt(from), num_bytes}, "copy from device memory");
    ExpectIn(pinned_memory_, target, "copy to pinned memory");
    return Enqueue(NumberOf(stream),
                   {.text = absl::StrCat("copy_to_host ", num_bytes),
                    .run = [=] { std::memcpy(to, MemoryAt(from), num_bytes); },
                    .touches = {target}});
  };
  api.copy_on_device = [this](CuDevicePtr to, CuDevicePtr from, size_t num_bytes, CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("copy_on_device", true);
    if (result != kCuSuccess) return result;
    ExpectIn(device_memory_, {MemoryAt(from), num_bytes}, "copy from device memory");
    ExpectIn(device_memory_, {MemoryAt(to), num_bytes}, "copy to device memory");
    return Enqueue(NumberOf(stream),
                   {.text = absl::StrCat("copy_on_device ", num_bytes),
                    .run = [=] { std::memmove(MemoryAt(to), MemoryAt(from), num_bytes); }});
  };
  api.fill_bytes = [this](CuDevicePtr at, unsigned char value, size_t num_bytes, CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("fill_bytes", true);
    if (result != kCuSuccess) return result;
    ExpectIn(device_memory_, {MemoryAt(at), num_bytes}, "fill");
    return Enqueue(NumberOf(stream), {.text = absl::StrCat("fill_bytes ", num_bytes), .run = [=] {
                                        std::memset(MemoryAt(at), value, num_bytes);
                                      }});
  };
}

void FakeCudaDriver::FillStreamApi(DriverApi& api) {
  api.stream_create = [this](CuStream* stream, unsigned flags) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("stream_create", true);
    if (result != kCuSuccess) return result;
    if (flags != kCuStreamNonBlocking) Note("a stream that waits for stream 0");
    streams_[next_handle_] = {};
    *stream = HandleOf<CuStream>(next_handle_++);
    return result;
  };
  api.stream_destroy = [this](CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("stream_destroy", true);
    is_held_ = false;
    RunStream(NumberOf(stream));
    if (streams_.erase(NumberOf(stream)) == 0) Note("a stream destroyed that is none");
    return result;
  };
  api.stream_query = [this](CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("stream_query", true);
    if (result != kCuSuccess) return result;
    if (!streams_.contains(NumberOf(stream))) {
      Note("a stream asked that is none");
      return CuResult{kCuInvalidHandle};
    }
    RunStream(NumberOf(stream));
    if (broken_ != kCuSuccess) return broken_;
    return streams_[NumberOf(stream)].empty() ? CuResult{kCuSuccess} : CuResult{kCuNotReady};
  };
  api.launch_host_function = [this](CuStream stream, CuHostFunction function, void* data) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("launch_host_function", true);
    if (result != kCuSuccess) return result;
    return Enqueue(NumberOf(stream), {.text = "host_function", .run = [=] { function(data); }});
  };
}

void FakeCudaDriver::FillEventApi(DriverApi& api) {
  api.event_create = [this](CuEvent* event, unsigned /*flags*/) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("event_create", true);
    if (result != kCuSuccess) return result;
    events_[next_handle_] = nullptr;
    *event = HandleOf<CuEvent>(next_handle_++);
    return result;
  };
  api.event_destroy = [this](CuEvent event) {
    const MutexLock lock(mu_);
    if (events_.erase(NumberOf(event)) == 0) Note("an event destroyed that is none");
    return Begin("event_destroy", true);
  };
  api.event_record = [this](CuEvent event, CuStream stream) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("event_record", true);
    if (result != kCuSuccess) return result;
    auto moment = std::make_shared<Moment>();
    moment->stream = NumberOf(stream);
    events_[NumberOf(event)] = moment;
    return Enqueue(NumberOf(stream),
                   {.text = "event_record",
                    .run = {},
                    .touches = {},
                    .waits_for = nullptr,
                    .reaches = moment});
  };
  api.event_query = [this](CuEvent event) {
    const MutexLock lock(mu_);
    const std::shared_ptr<Moment> moment = events_[NumberOf(event)];
    if (moment != nullptr) RunStream(moment->stream);
    const bool is_reached = moment == nullptr || moment->is_reached;
    return is_reached ? CuResult{kCuSuccess} : CuResult{kCuNotReady};
  };
  api.stream_wait_event = [this](CuStream stream, CuEvent event, unsigned /*flags*/) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("stream_wait_event", true);
    if (result != kCuSuccess) return result;
    const std::shared_ptr<Moment> moment = events_[NumberOf(event)];
    if (moment == nullptr) Note("a wait for an event that nobody has recorded");
    return Enqueue(NumberOf(stream),
                   {.text = "wait_event", .run = {}, .touches = {}, .waits_for = moment});
  };
}

void FakeCudaDriver::FillTimeApi(DriverApi& api) {
  api.event_elapsed = [this](float* milliseconds, CuEvent start, CuEvent end) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("event_elapsed", true);
    if (result != kCuSuccess) return result;
    const std::shared_ptr<Moment> first = events_[NumberOf(start)];
    const std::shared_ptr<Moment> last = events_[NumberOf(end)];
    if (first == nullptr || last == nullptr) return CuResult{kCuInvalidHandle};
    if (!first->is_reached || !last->is_reached) return CuResult{kCuNotReady};
    *milliseconds = static_cast<float>(last->tick - first->tick);  // a millisecond an operation
    return result;
  };
}

void FakeCudaDriver::FillModuleApi(DriverApi& api) {
  api.module_load = [this](CuModule* module, const void* image) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("module_load", true);
    if (result != kCuSuccess) return result;
    if (image != kFakeImage.data()) return CuResult{kCuInvalidImage};
    modules_.insert(next_handle_);
    *module = HandleOf<CuModule>(next_handle_++);
    return result;
  };
  api.module_unload = [this](CuModule module) {
    const MutexLock lock(mu_);
    if (modules_.erase(NumberOf(module)) == 0) Note("a module unloaded that is none");
    return Begin("module_unload", true);
  };
  api.module_get_function = [this](CuFunction* function, CuModule module, const char* name) {
    const MutexLock lock(mu_);
    const CuResult result = Begin("module_get_function", true);
    if (result != kCuSuccess) return result;
    if (!modules_.contains(NumberOf(module))) return CuResult{kCuInvalidHandle};
    for (size_t i = 0; i < kHostKernels.size(); ++i) {
      if (std::strcmp(kHostKernels[i].name, name) != 0) continue;
      *function = HandleOf<CuFunction>(i + 1);
      return result;
    }
    return CuResult{kCuNotFound};
  };
  api.launch_kernel =
      [this](CuFunction kernel, const KernelGrid& grid, CuStream stream, void** parameters) {
        const MutexLock lock(mu_);
        const CuResult result = Begin("launch_kernel", true);
        if (result != kCuSuccess) return result;
        return Launch(kernel, grid, NumberOf(stream), parameters);
      };
}

CuResult FakeCudaDriver::Launch(CuFunction function,
                                const KernelGrid& grid,
                                uint64_t stream,
                                void** parameters) {
  const uint64_t num_threads = uint64_t{grid.num_blocks} * grid.threads_per_block;
  if (num_threads == 0 || num_threads > kThreadsMax || grid.threads_per_block > kThreadsPerBlock)
    return kCuInvalidValue;
  if (modules_.empty()) Note("a kernel launched after its module was unloaded");
  const HostKernel& kernel = kHostKernels.at(NumberOf(function) - 1);
  // As the driver does: parameters are read during the call.
  std::vector<std::byte> args(kernel.args_bytes);
  std::memcpy(args.data(), parameters[0], args.size());
  return Enqueue(stream, {.text = kernel.name, .run = [&kernel, num_threads, args] {
                            kernel.run(args.data(), num_threads);
                          }});
}

}  // namespace pushpull
