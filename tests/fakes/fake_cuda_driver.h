// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for NVIDIA's driver: device memory is memory of the host, and kernels are the bodies
// of runtime/device/cuda/kernel_bodies.h, thread by thread. It is as lazy as a driver may be: work
// of a stream runs when somebody asks for the stream, not before. So whoever reads too early reads
// the wrong values, in every run. What a real driver would leave undefined is noted as a violation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/device/cuda/driver_api.h"

namespace pushpull {

// Thread-safe. Must outlive everything that uses its api().
class FakeCudaDriver {
 public:
  static constexpr int kNumGpus = 2;
  static constexpr size_t kMemoryBytes = size_t{1} << 30;  // of a GPU

  // What module_load accepts.
  static std::span<const std::byte> KernelImage();

  FakeCudaDriver() = default;
  FakeCudaDriver(const FakeCudaDriver&) = delete;
  FakeCudaDriver& operator=(const FakeCudaDriver&) = delete;
  ~FakeCudaDriver();

  std::shared_ptr<const DriverApi> api();

  // Until false, no work runs: streams are busy.
  void HoldWork(bool is_held) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs all work of all streams, as the GPU does in its own time.
  void RunWork() ABSL_LOCKS_EXCLUDED(mu_);
  // The next call of this function (the name of the field of DriverApi) fails so, once.
  void FailNext(const std::string& function, CuResult result) ABSL_LOCKS_EXCLUDED(mu_);
  // The next operation that runs fails, and with it every later call, as in a broken context.
  void FailWork(CuResult result) ABSL_LOCKS_EXCLUDED(mu_);

  // Work that needs several streams at once, as a collective between them: it runs, once, when so
  // many have come to it. None of them goes on before.
  struct Meeting {
    size_t num_streams = 0;
    std::function<void()> run;
    std::set<uint64_t> arrived = {};
    bool is_over = false;  // it has run, or is cancelled
  };
  void EnqueueMeeting(CuStream stream, std::string text, std::shared_ptr<Meeting> meeting)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Streams go on without it. Whether it was not over yet.
  bool CancelMeeting(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);

  // "stream 1: copy_to_device 4096", in the order in which work ran.
  std::vector<std::string> work_log() const ABSL_LOCKS_EXCLUDED(mu_);
  // What a program must not do, in words. Empty: nothing.
  std::vector<std::string> violations() const ABSL_LOCKS_EXCLUDED(mu_);
  // Buffers, pinned buffers, streams, events, modules and contexts that were not ended, as "2
  // streams". Empty: none.
  std::vector<std::string> leftovers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Range {
    const std::byte* data = nullptr;
    size_t num_bytes = 0;
  };
  // A moment of a stream: the place of an event, or nothing yet.
  struct Moment {
    uint64_t stream = 0;
    bool is_reached = false;
    uint64_t tick = 0;
  };
  struct Operation {
    std::string text;
    std::function<void()> run;
    std::vector<Range> touches;
    std::shared_ptr<Moment> waits_for = nullptr;
    std::shared_ptr<Moment> reaches = nullptr;
    std::shared_ptr<Meeting> meeting = nullptr;
  };
  struct Allocation {
    std::unique_ptr<std::byte[]> memory;
    size_t num_bytes = 0;
  };

  void FillDeviceApi(DriverApi& api);
  void FillMemoryApi(DriverApi& api);
  void FillPinnedApi(DriverApi& api);
  void FillCopyApi(DriverApi& api);
  void FillStreamApi(DriverApi& api);
  void FillEventApi(DriverApi& api);
  void FillTimeApi(DriverApi& api);
  void FillModuleApi(DriverApi& api);

  // What every call begins with: the failure that a test has ordered, and the rules of all calls.
  CuResult Begin(const std::string& function, bool needs_context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  CuResult Enqueue(uint64_t stream, Operation operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunStream(uint64_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the stream may go on behind the meeting.
  bool Meet(uint64_t stream, Meeting& meeting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Note(const std::string& violation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Memory of a GPU (of the host, pinned) that is allocated and holds so many bytes; notes a
  // violation otherwise.
  void ExpectIn(const std::map<const std::byte*, Allocation>& allocations,
                const Range& range,
                const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpectUntouched(const Range& freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  CuResult Launch(CuFunction function, const KernelGrid& grid, uint64_t stream, void** parameters)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  bool is_initialized_ ABSL_GUARDED_BY(mu_) = false;
  bool is_held_ ABSL_GUARDED_BY(mu_) = false;
  CuResult broken_ ABSL_GUARDED_BY(mu_) = kCuSuccess;
  CuResult next_work_ ABSL_GUARDED_BY(mu_) = kCuSuccess;
  std::map<std::string, CuResult> failures_ ABSL_GUARDED_BY(mu_);
  std::map<CuDevice, int> contexts_ ABSL_GUARDED_BY(mu_);  // how often each is retained
  std::map<std::thread::id, std::vector<CuDevice>> current_ ABSL_GUARDED_BY(mu_);
  std::map<const std::byte*, Allocation> device_memory_ ABSL_GUARDED_BY(mu_);
  std::map<const std::byte*, Allocation> pinned_memory_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::deque<Operation>> streams_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> running_ ABSL_GUARDED_BY(mu_);  // streams whose work is being run
  std::map<uint64_t, std::shared_ptr<Moment>> events_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> modules_ ABSL_GUARDED_BY(mu_);
  uint64_t next_handle_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t tick_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> work_log_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
