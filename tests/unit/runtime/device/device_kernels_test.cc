// SPDX-License-Identifier: Apache-2.0
//
// Every kernel against the CPU's code. The tolerance is none: all bits are equal, the payload and
// sign of a NaN aside.
#include "runtime/device/device_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/optim/optimizer.h"
#include "runtime/tensor/half_float.h"
#include "runtime/tensor/reduce.h"
#include "tests/fakes/fake_cuda_driver.h"
#include "tests/unit/runtime/device/on_device.h"
#include "tests/unit/runtime/optim/optimizer_cases.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Numbers at the edges of float32, float16 and bfloat16.
const std::vector<float> kEdges = {0.0F,
                                   -0.0F,
                                   1.0F,
                                   -1.0F,
                                   1e-45F,
                                   -1e-40F,
                                   1.1755e-38F,
                                   3.4e38F,
                                   -3.4e38F,
                                   65'504.0F,
                                   65'519.9F,
                                   65'520.0F,
                                   -65'520.0F,
                                   6.1e-5F,
                                   5.96e-8F,
                                   2.98e-8F,
                                   1e-30F,
                                   1e30F};

std::vector<float> WithEdges(size_t num_elements, uint32_t seed) {
  std::vector<float> values = RandomFloats(num_elements, seed);
  for (size_t i = seed % 3; i < num_elements; i += 7)
    values[i] = kEdges[(i / 7 + seed) % kEdges.size()];
  return values;
}

std::vector<float> WithNotFinite(size_t num_elements, uint32_t seed) {
  std::vector<float> values = WithEdges(num_elements, seed);
  for (size_t i = 5 + seed % 4; i < num_elements; i += 97) {
    values[i] = i % 2 == 0 ? kNaN : (i % 3 == 0 ? kInfinity : -kInfinity);
  }
  return values;
}

// The first element whose bits differ, in words; empty: none. Any two NaN are equal.
std::string Difference(std::span<const float> expected, std::span<const float> actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    const auto want = std::bit_cast<uint32_t>(expected[i]);
    const auto have = std::bit_cast<uint32_t>(actual[i]);
    if (want == have) continue;
    return absl::StrCat("element ",
                        i,
                        " of ",
                        expected.size(),
                        ": ",
                        actual[i],
                        " (",
                        absl::Hex(have),
                        "), not ",
                        expected[i],
                        " (",
                        absl::Hex(want),
                        ")");
  }
  return "";
}

std::string HalfDifference(std::span<const uint16_t> expected,
                           std::span<const uint16_t> actual,
                           uint16_t infinity) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool are_nan = (expected[i] & 0x7FFFU) > infinity && (actual[i] & 0x7FFFU) > infinity;
    if (are_nan || expected[i] == actual[i]) continue;
    return absl::StrCat("half ", i, ": ", absl::Hex(actual[i]), ", not ", absl::Hex(expected[i]));
  }
  return "";
}

class DeviceKernelsTest : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto kernels = DeviceKernels::Load(on().device(), image());
    ASSERT_EQ(absl::OkStatus(), kernels.status());
    kernels_ = *std::move(kernels);
  }
  void TearDown() override {
    kernels_.reset();
    OnDevice::TearDown();
  }

  const DeviceKernels& kernels() { return *kernels_; }

  // Single elements, whole vectors and a rest, several blocks; on a GPU
  // enough for every multiprocessor.
  std::vector<size_t> sizes() const {
    std::vector<size_t> sizes = {0, 1, 3, 4, 5, 255, 1024, 4099, 100'003};
    if (is_gpu()) sizes.push_back((size_t{1} << 21) + 5);
    return sizes;
  }

 private:
  std::unique_ptr<const DeviceKernels> kernels_;
};
PUSHPULL_ON_DEVICES(DeviceKernelsTest);

TEST_P(DeviceKernelsTest, Copies) {
  for (const size_t num_elements : sizes()) {
    const std::vector<float> from = WithNotFinite(num_elements, 1);
    const DeviceSpan<float> to = on().Upload(std::vector<float>(num_elements, 5.0F));

    ASSERT_EQ(absl::OkStatus(), kernels().Copy(on().stream(), to, on().Upload(from)));

    EXPECT_EQ(Difference(from, on().Download(to)), "");
  }
}

TEST_P(DeviceKernelsTest, AddsWithEveryScaleAsTheCpuDoes) {
  for (const size_t num_elements : sizes()) {
    for (const float scale : {1.0F, 0.3F, -2.5F}) {
      std::vector<float> expected = WithEdges(num_elements, 1);
      const std::vector<float> x = WithEdges(num_elements, 2);
      const DeviceSpan<float> accumulator = on().Upload(expected);
      const DeviceSpan<uint32_t> not_finite = on().Upload<uint32_t>({0});

      ASSERT_EQ(absl::OkStatus(),
                kernels().AddScaled(on().stream(), accumulator, on().Upload(x), scale, not_finite));
      const bool is_finite = AddScaled(expected, x, scale);

      EXPECT_EQ(Difference(expected, on().Download(accumulator)), "") << scale;
      EXPECT_EQ(on().Download(not_finite)[0], is_finite ? 0U : 1U) << num_elements;
    }
  }
}

TEST_P(DeviceKernelsTest, SumsThatNobodyAsksAboutAreAddedToo) {
  std::vector<float> expected = {1, kInfinity, 3};
  const DeviceSpan<float> accumulator = on().Upload(expected);
  const DeviceSpan<float> x = on().Upload<float>({1, 2, 3});

  ASSERT_EQ(absl::OkStatus(), kernels().AddScaled(on().stream(), accumulator, x, 1, {}));

  EXPECT_EQ(Difference(std::vector<float>{2, kInfinity, 6}, on().Download(accumulator)), "");
}

TEST_P(DeviceKernelsTest, TakesMinimumAndMaximumAsTheCpuDoes) {
  for (const size_t num_elements : sizes()) {
    std::vector<float> least = WithNotFinite(num_elements, 3);
    std::vector<float> most = least;
    const std::vector<float> x = WithNotFinite(num_elements, 4);
    const DeviceSpan<float> on_device_x = on().Upload(x);
    const DeviceSpan<float> on_device_least = on().Upload(least);
    const DeviceSpan<float> on_device_most = on().Upload(most);

    ASSERT_EQ(absl::OkStatus(), kernels().Minimum(on().stream(), on_device_least, on_device_x));
    ASSERT_EQ(absl::OkStatus(), kernels().Maximum(on().stream(), on_device_most, on_device_x));
    Minimum(least, x);
    Maximum(most, x);

    EXPECT_EQ(Difference(least, on().Download(on_device_least)), "");
    EXPECT_EQ(Difference(most, on().Download(on_device_most)), "");
  }
}

TEST_P(DeviceKernelsTest, ScalesAsTheCpuDoes) {
  for (const size_t num_elements : sizes()) {
    std::vector<float> expected = WithNotFinite(num_elements, 6);
    const DeviceSpan<float> x = on().Upload(expected);

    ASSERT_EQ(absl::OkStatus(), kernels().Scale(on().stream(), x, 0.7F));
    Scale(expected, 0.7F);

    EXPECT_EQ(Difference(expected, on().Download(x)), "");
  }
}

TEST_P(DeviceKernelsTest, OneValueThatIsNotFiniteIsFoundAnywhere) {
  const DeviceSpan<uint32_t> not_finite = on().Upload<uint32_t>({0});
  std::vector<float> values = WithEdges(4099, 7);
  ASSERT_EQ(absl::OkStatus(),
            kernels().CheckFinite(on().stream(), on().Upload(values), not_finite));
  EXPECT_EQ(on().Download(not_finite)[0], 0U);

  for (const size_t place : std::vector<size_t>{0, 3, 2048, 4095, 4096, 4098}) {
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      values = WithEdges(4099, 7);
      values[place] = bad;
      const DeviceSpan<uint32_t> found = on().Upload<uint32_t>({0});
      ASSERT_EQ(absl::OkStatus(), kernels().CheckFinite(on().stream(), on().Upload(values), found));
      EXPECT_EQ(on().Download(found)[0], 1U) << place;
    }
  }
}

// All bits of exponent and sign, with the lowest and highest bits of the fraction.
std::vector<float> FloatsOfAllMagnitudes() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000U; ++high) {
    for (const uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      values.push_back(std::bit_cast<float>((high << 16) | low));
  }
  return values;
}

TEST_P(DeviceKernelsTest, EncodesHalvesAsTheCpuDoes) {
  const std::vector<float> values = FloatsOfAllMagnitudes();
  const DeviceSpan<float> on_device = on().Upload(values);
  std::vector<uint16_t> halves(values.size());
  const DeviceSpan<uint16_t> encoded = on().Upload(halves);
  const DeviceSpan<unsigned long long> overflows = on().Upload<unsigned long long>({0});

  ASSERT_EQ(absl::OkStatus(),
            kernels().EncodeFloat16(on().stream(), on_device, encoded, overflows));
  const uint64_t of_float16 = EncodeFloat16(values, std::as_writable_bytes(std::span(halves)));
  EXPECT_EQ(HalfDifference(halves, on().Download(encoded), 0x7C00U), "");
  EXPECT_EQ(on().Download(overflows)[0], of_float16);

  ASSERT_EQ(absl::OkStatus(),
            kernels().EncodeBFloat16(on().stream(), on_device, encoded, overflows));
  const uint64_t of_bfloat16 = EncodeBFloat16(values, std::as_writable_bytes(std::span(halves)));
  EXPECT_EQ(HalfDifference(halves, on().Download(encoded), 0x7F80U), "");
  EXPECT_EQ(on().Download(overflows)[0], of_float16 + of_bfloat16);
}

TEST_P(DeviceKernelsTest, DecodesEveryHalfAsTheCpuDoes) {
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> expected(halves.size());
  const DeviceSpan<uint16_t> on_device = on().Upload(halves);
  const DeviceSpan<float> decoded = on().Upload(expected);

  ASSERT_EQ(absl::OkStatus(), kernels().DecodeFloat16(on().stream(), on_device, decoded));
  DecodeFloat16(std::as_bytes(std::span(halves)), expected);
  EXPECT_EQ(Difference(expected, on().Download(decoded)), "");

  ASSERT_EQ(absl::OkStatus(), kernels().DecodeBFloat16(on().stream(), on_device, decoded));
  DecodeBFloat16(std::as_bytes(std::span(halves)), expected);
  EXPECT_EQ(Difference(expected, on().Download(decoded)), "");
}

TEST_P(DeviceKernelsTest, EveryOptimizerUpdatesAsOnTheCpu) {
  for (const OptimizerSpec& spec : AllOptimizers()) {
    for (const size_t num_elements : sizes()) {
      Chunk chunk = MakeChunk(spec, RandomFloats(num_elements, 11));
      const DeviceSpan<float> value = on().Upload(chunk.value);
      const DeviceSpan<float> state = on().Upload(chunk.state);

      for (uint64_t step = 1; step <= 3; ++step) {
        const std::vector<float> gradient =
            WithNotFinite(num_elements, static_cast<uint32_t>(20 + step));
        const StepInput input = InputOfStep(spec, step);
        ASSERT_EQ(absl::OkStatus(),
                  kernels().ApplyOptimizer(on().stream(),
                                           spec,
                                           input,
                                           {.gradient = on().Upload(gradient),
                                            .value_in = value,
                                            .value_out = value,
                                            .state = state}));
        ApplyOptimizer(spec, input, gradient, chunk.value, chunk.value, chunk.state);
      }

      EXPECT_EQ(Difference(chunk.value, on().Download(value)), "") << ToString(spec);
      EXPECT_EQ(Difference(chunk.state, on().Download(state)), "") << ToString(spec);
    }
  }
}

TEST_P(DeviceKernelsTest, AnUpdateApartFromItsInputLeavesThatAlone) {
  const OptimizerSpec spec{.kind = OptimizerKind::kSgd, .learning_rate = 0.1};
  const std::vector<float> before = RandomFloats(1003, 1);
  const std::vector<float> gradient = RandomFloats(1003, 2);
  std::vector<float> after(1003);
  const DeviceSpan<float> value_in = on().Upload(before);
  const DeviceSpan<float> value_out = on().Upload(after);

  ASSERT_EQ(absl::OkStatus(),
            kernels().ApplyOptimizer(on().stream(),
                                     spec,
                                     InputOfStep(spec, 1),
                                     {.gradient = on().Upload(gradient),
                                      .value_in = value_in,
                                      .value_out = value_out,
                                      .state = {}}));
  ApplyOptimizer(spec, InputOfStep(spec, 1), gradient, before, after, {});

  EXPECT_EQ(Difference(after, on().Download(value_out)), "");
  EXPECT_EQ(Difference(before, on().Download(value_in)), "");
}

TEST_P(DeviceKernelsTest, UnalignedPartsGiveTheSameBitsAndTouchNothingElse) {
  for (const size_t offset : std::vector<size_t>{1, 2, 3, 4}) {
    std::vector<float> expected = WithEdges(2000, 8);
    const std::vector<float> x = WithEdges(2000, 9);
    const DeviceSpan<float> accumulator = on().Upload(expected);
    const DeviceSpan<float> on_device_x = on().Upload(x);

    ASSERT_EQ(absl::OkStatus(),
              kernels().AddScaled(on().stream(),
                                  accumulator.subspan(offset, 1990),
                                  on_device_x.subspan(0, 1990),
                                  0.5F,
                                  {}));
    AddScaled(std::span(expected).subspan(offset, 1990), std::span(x).first(1990), 0.5F);

    EXPECT_EQ(Difference(expected, on().Download(accumulator)), "") << offset;
  }
}

class KernelLoadTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(InitializeDriver(*fake_.api()).status(), absl::OkStatus());
    device_ = *Device::Open(fake_.api(), 0);
  }
  void TearDown() override {
    device_.reset();
    EXPECT_THAT(fake_.leftovers(), testing::IsEmpty());
    EXPECT_THAT(fake_.violations(), testing::IsEmpty());
  }

  FakeCudaDriver fake_;
  std::shared_ptr<const Device> device_;
};

TEST_F(KernelLoadTest, ABuildWithoutCudaSaysSo) {
  const auto kernels = DeviceKernels::Load(device_, {});

  EXPECT_EQ(kernels.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(kernels.status().ToString(), HasSubstr("PUSHPULL_ENABLE_CUDA"));
}

TEST_F(KernelLoadTest, AnImageForOtherGpusIsAnError) {
  fake_.FailNext("module_load", kCuNoBinaryForGpu);

  const auto kernels = DeviceKernels::Load(device_, FakeCudaDriver::KernelImage());

  EXPECT_EQ(kernels.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(kernels.status().ToString(), HasSubstr("PUSHPULL_CUDA_ARCHITECTURES"));
}

TEST_F(KernelLoadTest, AKernelThatIsMissingIsNamed) {
  fake_.FailNext("module_get_function", kCuNotFound);

  const auto kernels = DeviceKernels::Load(device_, FakeCudaDriver::KernelImage());

  EXPECT_THAT(kernels.status().ToString(), HasSubstr("cuModuleGetFunction of pushpull_copy"));
}

TEST_F(KernelLoadTest, AFailedLaunchNamesItsKernel) {
  DeviceStream stream = *DeviceStream::Create(device_);
  const auto kernels = DeviceKernels::Load(device_, FakeCudaDriver::KernelImage());
  ASSERT_EQ(kernels.status(), absl::OkStatus());
  const DeviceBuffer buffer = *DeviceBuffer::Create(device_, 64);
  fake_.FailNext("launch_kernel", kCuLaunchFailed);

  const absl::Status scaled = (*kernels)->Scale(stream, buffer.As<float>(), 2);

  EXPECT_EQ(scaled.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(scaled.ToString(), HasSubstr("cuLaunchKernel of pushpull_scale on GPU 0"));
}

}  // namespace
}  // namespace pushpull
