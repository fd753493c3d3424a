// SPDX-License-Identifier: Apache-2.0
//
// Times copies and kernels of runtime/device on a GPU, each beside the bandwidth of a copy on the
// same GPU, which is the most that any of them can have.
//
//   device_speed [--mib N] [--rounds N] [--device N] [--json FILE]
//
// A table on the standard output, and the same as JSON. Exit codes: 0 done, 1 an error, 2 wrong
// usage, 3 there is no GPU to measure; the text says why.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/device/cuda/kernel_image.h"
#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"
#include "runtime/device/device_kernels.h"
#include "runtime/device/device_stream.h"
#include "runtime/device/staging_ring.h"

namespace pushpull {
namespace {

constexpr int kNoGpu = 3;
constexpr int kWarmUps = 3;
constexpr std::chrono::seconds kLimit{60};
// What copies and sums should reach of a copy's bandwidth (docs/gpus.md).
constexpr double kWantedShare = 0.85;

struct Arguments {
  uint64_t mib = 256;  // of each array: larger than the cache of any GPU
  int rounds = 20;
  int device = 0;
  std::string json;
};

absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value"));
    const std::string value = argv[i + 1];
    bool is_known = flag == "--json";
    if (is_known) arguments.json = value;
    if (flag == "--mib") is_known = absl::SimpleAtoi(value, &arguments.mib) && arguments.mib > 0;
    if (flag == "--rounds")
      is_known = absl::SimpleAtoi(value, &arguments.rounds) && arguments.rounds > 0;
    if (flag == "--device") is_known = absl::SimpleAtoi(value, &arguments.device);
    if (!is_known)
      return absl::InvalidArgumentError(absl::StrCat("not understood: ", flag, " ", value));
  }
  return arguments;
}

// One row of the table.
struct Speed {
  std::string name;
  double bytes = 0;  // read and written
  double seconds_median = 0;
  double seconds_best = 0;

  double gigabytes_per_second() const { return bytes / seconds_median / 1e9; }
};

// Arrays of the device, four of one size, and what is timed on them.
class SpeedTest {
 public:
  static absl::StatusOr<std::unique_ptr<SpeedTest>> Create(
      const std::shared_ptr<const Device>& device, const Arguments& arguments);

  // Copies on the GPU first: they are what others are compared with.
  absl::Status Run();

  const std::vector<Speed>& speeds() const { return speeds_; }

 private:
  SpeedTest(std::shared_ptr<const Device> device, const Arguments& arguments, DeviceStream stream)
      : device_(std::move(device)), arguments_(arguments), stream_(std::move(stream)) {}

  using Work = std::function<absl::Status()>;
  absl::Status Time(const std::string& name, double bytes, const Work& work);
  absl::Status RunCopies();
  absl::Status RunSums();
  absl::Status RunConversions();
  absl::Status RunOptimizers();

  DeviceSpan<float> array(size_t i) const { return arrays_[i].As<float>(); }

  const std::shared_ptr<const Device> device_;
  const Arguments arguments_;
  DeviceStream stream_;
  std::unique_ptr<const DeviceKernels> kernels_;
  std::vector<DeviceBuffer> arrays_;
  DeviceBuffer report_;
  PinnedBuffer pinned_;
  std::vector<Speed> speeds_;
};

absl::StatusOr<std::unique_ptr<SpeedTest>> SpeedTest::Create(
    const std::shared_ptr<const Device>& device, const Arguments& arguments) {
  PUSHPULL_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create(device));
  std::unique_ptr<SpeedTest> test(new SpeedTest(device, arguments, std::move(stream)));
  PUSHPULL_ASSIGN_OR_RETURN(test->kernels_, DeviceKernels::Load(device, KernelImage()));
  const size_t num_bytes = arguments.mib << 20;
  for (int i = 0; i < 4; ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(DeviceBuffer array, DeviceBuffer::Create(device, num_bytes));
    PUSHPULL_RETURN_IF_ERROR(test->stream_.Fill(array.As<std::byte>(), 0));
    test->arrays_.push_back(std::move(array));
  }
  PUSHPULL_ASSIGN_OR_RETURN(test->report_, DeviceBuffer::Create(device, sizeof(uint64_t)));
  PUSHPULL_ASSIGN_OR_RETURN(test->pinned_, PinnedBuffer::Create(device, num_bytes));
  PUSHPULL_RETURN_IF_ERROR(test->stream_.Wait(Deadline::After(kLimit)));
  return test;
}

absl::Status SpeedTest::Time(const std::string& name, double bytes, const Work& work) {
  for (int i = 0; i < kWarmUps; ++i) PUSHPULL_RETURN_IF_ERROR(work());
  std::vector<std::pair<DeviceEvent, DeviceEvent>> rounds;
  for (int i = 0; i < arguments_.rounds; ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(DeviceEvent start, DeviceEvent::Create(device_));
    PUSHPULL_ASSIGN_OR_RETURN(DeviceEvent end, DeviceEvent::Create(device_));
    PUSHPULL_RETURN_IF_ERROR(stream_.Record(start));
    PUSHPULL_RETURN_IF_ERROR(work());
    PUSHPULL_RETURN_IF_ERROR(stream_.Record(end));
    rounds.emplace_back(std::move(start), std::move(end));
  }
  PUSHPULL_RETURN_IF_ERROR(stream_.Wait(Deadline::After(kLimit)));
  std::vector<double> seconds;
  for (const auto& [start, end] : rounds) {
    PUSHPULL_ASSIGN_OR_RETURN(const double took, DeviceEvent::SecondsBetween(start, end));
    seconds.push_back(took);
  }
  std::sort(seconds.begin(), seconds.end());
  speeds_.push_back({name, bytes, seconds[seconds.size() / 2], seconds.front()});
  return absl::OkStatus();
}

absl::Status SpeedTest::Run() {
  PUSHPULL_RETURN_IF_ERROR(RunCopies());
  PUSHPULL_RETURN_IF_ERROR(RunSums());
  PUSHPULL_RETURN_IF_ERROR(RunConversions());
  return RunOptimizers();
}

absl::Status SpeedTest::RunCopies() {
  const double bytes = static_cast<double>(arrays_[0].num_bytes());
  const DeviceSpan<std::byte> to = arrays_[0].As<std::byte>();
  const DeviceSpan<std::byte> from = arrays_[1].As<std::byte>();
  PUSHPULL_RETURN_IF_ERROR(
      Time("copy of the driver", 2 * bytes, [&] { return stream_.CopyOnDevice(to, from); }));
  PUSHPULL_RETURN_IF_ERROR(Time(
      "host to device, pinned", bytes, [&] { return stream_.CopyToDevice(to, pinned_.bytes()); }));
  PUSHPULL_RETURN_IF_ERROR(Time(
      "device to host, pinned", bytes, [&] { return stream_.CopyToHost(pinned_.bytes(), to); }));
  // Zeros again: sums of what the host's memory holds could be anything.
  PUSHPULL_RETURN_IF_ERROR(stream_.Fill(to, 0));
  return Time("copy", 2 * bytes, [&] { return kernels_->Copy(stream_, array(0), array(1)); });
}

absl::Status SpeedTest::RunSums() {
  const double bytes = static_cast<double>(arrays_[0].num_bytes());
  const DeviceSpan<uint32_t> not_finite = report_.As<uint32_t>().subspan(0, 1);
  PUSHPULL_RETURN_IF_ERROR(Time(
      "sum", 3 * bytes, [&] { return kernels_->AddScaled(stream_, array(0), array(1), 1, {}); }));
  PUSHPULL_RETURN_IF_ERROR(Time("sum, scaled and checked", 3 * bytes, [&] {
    return kernels_->AddScaled(stream_, array(0), array(1), 0.5F, not_finite);
  }));
  PUSHPULL_RETURN_IF_ERROR(
      Time("maximum", 3 * bytes, [&] { return kernels_->Maximum(stream_, array(0), array(1)); }));
  PUSHPULL_RETURN_IF_ERROR(
      Time("scale", 2 * bytes, [&] { return kernels_->Scale(stream_, array(0), 0.5F); }));
  return Time(
      "check for NaN", bytes, [&] { return kernels_->CheckFinite(stream_, array(0), not_finite); });
}

absl::Status SpeedTest::RunConversions() {
  const size_t num_elements = array(0).size();
  const double bytes = 1.5 * static_cast<double>(arrays_[0].num_bytes());
  const DeviceSpan<uint16_t> halves = arrays_[1].As<uint16_t>().subspan(0, num_elements);
  const DeviceSpan<unsigned long long> overflows = report_.As<unsigned long long>();
  PUSHPULL_RETURN_IF_ERROR(Time("float32 to float16", bytes, [&] {
    return kernels_->EncodeFloat16(stream_, array(0), halves, overflows);
  }));
  PUSHPULL_RETURN_IF_ERROR(Time("float32 to bfloat16", bytes, [&] {
    return kernels_->EncodeBFloat16(stream_, array(0), halves, overflows);
  }));
  PUSHPULL_RETURN_IF_ERROR(Time("float16 to float32", bytes, [&] {
    return kernels_->DecodeFloat16(stream_, halves, array(0));
  }));
  return Time("bfloat16 to float32", bytes, [&] {
    return kernels_->DecodeBFloat16(stream_, halves, array(0));
  });
}

absl::Status SpeedTest::RunOptimizers() {
  // Two halves of one array: state of two floats a value.
  const size_t num_elements = array(0).size() / 2;
  const double bytes = static_cast<double>(num_elements * sizeof(float));
  const struct {
    const char* name;
    OptimizerSpec spec;
    double arrays;  // read and written
  } rows[] = {
      {"sgd", {.kind = OptimizerKind::kSgd, .learning_rate = 0.1}, 3},
      {"sgd with momentum",
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9},
       5},
      {"adagrad", {.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1}, 5},
      {"adam", {.kind = OptimizerKind::kAdam, .learning_rate = 0.1}, 7},
      {"adamw", {.kind = OptimizerKind::kAdamW, .learning_rate = 0.1, .weight_decay = 0.01}, 7},
  };
  for (const auto& row : rows) {
    const DeviceUpdate update{
        .gradient = array(1).subspan(0, num_elements),
        .value_in = array(2).subspan(0, num_elements),
        .value_out = array(2).subspan(0, num_elements),
        .state = array(3).subspan(0, num_elements * StateFloatsPerValue(row.spec))};
    const StepInput input{.learning_rate = row.spec.learning_rate};
    PUSHPULL_RETURN_IF_ERROR(Time(row.name, row.arrays * bytes, [&] {
      return kernels_->ApplyOptimizer(stream_, row.spec, input, update);
    }));
  }
  return absl::OkStatus();
}

nlohmann::json ToJson(const DeviceProperties& properties,
                      const Arguments& arguments,
                      const std::vector<Speed>& speeds) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Speed& speed : speeds) {
    rows.push_back(
        {{"name", speed.name},
         {"bytes", speed.bytes},
         {"seconds_median", speed.seconds_median},
         {"seconds_best", speed.seconds_best},
         {"gigabytes_per_second", speed.gigabytes_per_second()},
         {"share_of_copy", speed.gigabytes_per_second() / speeds[0].gigabytes_per_second()}});
  }
  return {{"device", properties.name},
          {"compute_capability", absl::StrCat(properties.major, ".", properties.minor)},
          {"driver_cuda_version", properties.driver_version},
          {"mib", arguments.mib},
          {"rounds", arguments.rounds},
          {"rows", rows}};
}

void PrintTable(const Device& device,
                const Arguments& arguments,
                const std::vector<Speed>& speeds) {
  const DeviceProperties& properties = device.properties();
  absl::PrintF(
      "%s, compute capability %d.%d, driver for CUDA %d.%d; arrays of %d MiB, median of %d\n",
      device.text(),
      properties.major,
      properties.minor,
      properties.driver_version / 1000,
      properties.driver_version % 1000 / 10,
      arguments.mib,
      arguments.rounds);
  absl::PrintF("%-26s %10s %10s %8s  %s\n", "what", "ms", "GB/s", "of copy", "wanted");
  for (const Speed& speed : speeds) {
    const double share = speed.gigabytes_per_second() / speeds[0].gigabytes_per_second();
    std::string verdict;
    if (speed.name == "copy" || speed.name == "sum")
      verdict = absl::StrFormat("%.2f: %s", kWantedShare, share >= kWantedShare ? "met" : "MISSED");
    absl::PrintF("%-26s %10.3f %10.1f %8.2f  %s\n",
                 speed.name,
                 speed.seconds_median * 1e3,
                 speed.gigabytes_per_second(),
                 share,
                 verdict);
  }
}

absl::StatusOr<std::shared_ptr<const Device>> OpenGpu(int ordinal) {
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const DriverApi> driver, LoadDriverApi());
  return Device::Open(std::move(driver), ordinal);
}

absl::Status Measure(const std::shared_ptr<const Device>& device, const Arguments& arguments) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<SpeedTest> test,
                            SpeedTest::Create(device, arguments));
  PUSHPULL_RETURN_IF_ERROR(test->Run());
  PrintTable(*device, arguments, test->speeds());
  const std::string json = ToJson(device->properties(), arguments, test->speeds()).dump(1);
  if (arguments.json.empty()) return absl::OkStatus();
  std::ofstream file(arguments.json);
  file << json << '\n';
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("cannot write ", arguments.json));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Arguments> arguments = ParseArguments(argc, argv);
  if (!arguments.ok()) {
    std::cerr << "device_speed: " << arguments.status().message() << '\n';
    return 2;
  }
  const absl::StatusOr<std::shared_ptr<const Device>> device = OpenGpu(arguments->device);
  if (!device.ok()) {
    std::cerr << "device_speed: " << device.status().message() << '\n';
    return kNoGpu;
  }
  const absl::Status measured = Measure(*device, *arguments);
  if (measured.ok()) return 0;
  std::cerr << "device_speed: " << measured.message() << '\n';
  return 1;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  try {
    return pushpull::Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
