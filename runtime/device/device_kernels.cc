// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_kernels.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cuda/kernel_args.h"
#include "runtime/device/kernel_launch.h"

namespace pushpull {
namespace {

// The function of the kernel that takes Args.
template <typename Args>
struct KernelFunction {
  CuFunction handle = nullptr;
};

using KernelFunctions = std::tuple<KernelFunction<CopyArgs>,
                                   KernelFunction<AddScaledArgs>,
                                   KernelFunction<MinimumArgs>,
                                   KernelFunction<MaximumArgs>,
                                   KernelFunction<ScaleArgs>,
                                   KernelFunction<CheckFiniteArgs>,
                                   KernelFunction<EncodeFloat16Args>,
                                   KernelFunction<EncodeBFloat16Args>,
                                   KernelFunction<DecodeFloat16Args>,
                                   KernelFunction<DecodeBFloat16Args>,
                                   KernelFunction<UpdateSumArgs>,
                                   KernelFunction<UpdateSgdArgs>,
                                   KernelFunction<UpdateMomentumArgs>,
                                   KernelFunction<UpdateAdagradArgs>,
                                   KernelFunction<UpdateAdamArgs>>;

template <typename Args>
absl::Status FindFunction(const Device& device, CuModule module, KernelFunction<Args>& function) {
  return device.Check(device.driver().module_get_function(&function.handle, module, Args::kName),
                      "cuModuleGetFunction",
                      0,
                      Args::kName);
}

absl::Status FindFunctions(const Device& device, CuModule module, KernelFunctions& functions) {
  absl::Status first_error;
  std::apply(
      [&](auto&... function) { (first_error.Update(FindFunction(device, module, function)), ...); },
      functions);
  return first_error;
}

// The address at which a call reports one number.
template <typename Number>
Number* ReportAt(DeviceSpan<Number> number) {
  PUSHPULL_CHECK(number.size() == 1);
  return number.data();
}

template <typename Args>
Args ReductionArgs(DeviceSpan<float> accumulator, DeviceSpan<const float> x) {
  PUSHPULL_CHECK(accumulator.size() == x.size());
  return {.extent = ExtentOf(x.size(), {{accumulator.data()}, {x.data()}}),
          .accumulator = accumulator.data(),
          .x = x.data()};
}

KernelExtent ExtentOfHalves(DeviceSpan<const float> values, DeviceSpan<const uint16_t> halves) {
  PUSHPULL_CHECK(values.size() == halves.size());
  return ExtentOf(values.size(), {{values.data()}, {halves.data(), sizeof(uint16_t)}});
}

template <typename Args>
Args EncodeArgs(DeviceSpan<const float> values,
                DeviceSpan<uint16_t> halves,
                DeviceSpan<unsigned long long> overflows) {
  return {.extent = ExtentOfHalves(values, halves),
          .values = values.data(),
          .halves = halves.data(),
          .overflows = ReportAt(overflows)};
}

template <typename Args>
Args DecodeArgs(DeviceSpan<const uint16_t> halves, DeviceSpan<float> values) {
  return {
      .extent = ExtentOfHalves(values, halves), .halves = halves.data(), .values = values.data()};
}

}  // namespace

struct DeviceKernels::Functions {
  KernelFunctions all;
};

absl::StatusOr<std::unique_ptr<const DeviceKernels>> DeviceKernels::Load(
    std::shared_ptr<const Device> device, std::span<const std::byte> image) {
  if (image.empty()) {
    return absl::FailedPreconditionError(
        "this build has no kernels for GPUs: configure it with -DPUSHPULL_ENABLE_CUDA=ON "
        "(docs/gpus.md)");
  }
  const DeviceScope scope(*device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  CuModule module = nullptr;
  PUSHPULL_RETURN_IF_ERROR(device->Check(
      device->driver().module_load(&module, image.data()), "cuModuleLoadData", image.size()));
  auto functions = std::make_unique<Functions>();
  const absl::Status found = FindFunctions(*device, module, functions->all);
  // From here on the destructor unloads the module.
  std::unique_ptr<const DeviceKernels> kernels(
      new DeviceKernels(std::move(device), module, std::move(functions)));
  PUSHPULL_RETURN_IF_ERROR(found);
  return kernels;
}

DeviceKernels::DeviceKernels(std::shared_ptr<const Device> device,
                             CuModule module,
                             std::unique_ptr<Functions> functions)
    : device_(std::move(device)), module_(module), functions_(std::move(functions)) {}

DeviceKernels::~DeviceKernels() {
  const DeviceScope scope(*device_);
  if (scope.status().ok()) device_->driver().module_unload(module_);
}

template <typename Args>
absl::Status DeviceKernels::Launch(DeviceStream& stream, Args args) const {
  PUSHPULL_CHECK(stream.device() == device_);
  if (args.extent.num_elements == 0) return absl::OkStatus();
  const DeviceScope scope(*device_);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  void* parameters[] = {&args};
  const CuFunction function = std::get<KernelFunction<Args>>(functions_->all).handle;
  const KernelGrid grid{.num_blocks = BlocksFor(args.extent, Args::kUnroll),
                        .threads_per_block = kThreadsPerBlock};
  const CuResult result =
      device_->driver().launch_kernel(function, grid, stream.handle(), parameters);
  return device_->Check(result, "cuLaunchKernel", 0, Args::kName);
}

absl::Status DeviceKernels::Copy(DeviceStream& stream,
                                 DeviceSpan<float> to,
                                 DeviceSpan<const float> from) const {
  PUSHPULL_CHECK(to.size() == from.size());
  return Launch(stream,
                CopyArgs{.extent = ExtentOf(to.size(), {{to.data()}, {from.data()}}),
                         .from = from.data(),
                         .to = to.data()});
}

absl::Status DeviceKernels::AddScaled(DeviceStream& stream,
                                      DeviceSpan<float> accumulator,
                                      DeviceSpan<const float> x,
                                      float scale,
                                      DeviceSpan<uint32_t> not_finite) const {
  PUSHPULL_CHECK(accumulator.size() == x.size());
  return Launch(
      stream,
      AddScaledArgs{.extent = ExtentOf(x.size(), {{accumulator.data()}, {x.data()}}),
                    .accumulator = accumulator.data(),
                    .x = x.data(),
                    .scale = scale,
                    .not_finite = not_finite.size() == 0 ? nullptr : ReportAt(not_finite)});
}

absl::Status DeviceKernels::Minimum(DeviceStream& stream,
                                    DeviceSpan<float> accumulator,
                                    DeviceSpan<const float> x) const {
  return Launch(stream, ReductionArgs<MinimumArgs>(accumulator, x));
}

absl::Status DeviceKernels::Maximum(DeviceStream& stream,
                                    DeviceSpan<float> accumulator,
                                    DeviceSpan<const float> x) const {
  return Launch(stream, ReductionArgs<MaximumArgs>(accumulator, x));
}

absl::Status DeviceKernels::Scale(DeviceStream& stream, DeviceSpan<float> x, float scale) const {
  return Launch(
      stream, ScaleArgs{.extent = ExtentOf(x.size(), {{x.data()}}), .x = x.data(), .scale = scale});
}

absl::Status DeviceKernels::CheckFinite(DeviceStream& stream,
                                        DeviceSpan<const float> x,
                                        DeviceSpan<uint32_t> not_finite) const {
  return Launch(stream,
                CheckFiniteArgs{.extent = ExtentOf(x.size(), {{x.data()}}),
                                .x = x.data(),
                                .not_finite = ReportAt(not_finite)});
}

absl::Status DeviceKernels::EncodeFloat16(DeviceStream& stream,
                                          DeviceSpan<const float> values,
                                          DeviceSpan<uint16_t> halves,
                                          DeviceSpan<unsigned long long> overflows) const {
  return Launch(stream, EncodeArgs<EncodeFloat16Args>(values, halves, overflows));
}

absl::Status DeviceKernels::EncodeBFloat16(DeviceStream& stream,
                                           DeviceSpan<const float> values,
                                           DeviceSpan<uint16_t> halves,
                                           DeviceSpan<unsigned long long> overflows) const {
  return Launch(stream, EncodeArgs<EncodeBFloat16Args>(values, halves, overflows));
}

absl::Status DeviceKernels::DecodeFloat16(DeviceStream& stream,
                                          DeviceSpan<const uint16_t> halves,
                                          DeviceSpan<float> values) const {
  return Launch(stream, DecodeArgs<DecodeFloat16Args>(halves, values));
}

absl::Status DeviceKernels::DecodeBFloat16(DeviceStream& stream,
                                           DeviceSpan<const uint16_t> halves,
                                           DeviceSpan<float> values) const {
  return Launch(stream, DecodeArgs<DecodeBFloat16Args>(halves, values));
}

absl::Status DeviceKernels::ApplySgd(DeviceStream& stream,
                                     const OptimizerSpec& spec,
                                     const StepInput& input,
                                     const DeviceUpdate& update) const {
  const size_t num_elements = update.value_out.size();
  const KernelArray gradient{update.gradient.data()};
  const KernelArray value_in{update.value_in.data()};
  const KernelArray value_out{update.value_out.data()};
  if (spec.momentum == 0) {
    return Launch(stream,
                  UpdateSgdArgs{.extent = ExtentOf(num_elements, {gradient, value_in, value_out}),
                                .gradient = update.gradient.data(),
                                .value_in = update.value_in.data(),
                                .value_out = update.value_out.data(),
                                .scalars = SgdScalarsOf(spec, input)});
  }
  const KernelArray state{update.state.data()};
  return Launch(
      stream,
      UpdateMomentumArgs{.extent = ExtentOf(num_elements, {gradient, value_in, value_out, state}),
                         .gradient = update.gradient.data(),
                         .value_in = update.value_in.data(),
                         .value_out = update.value_out.data(),
                         .momentum = update.state.data(),
                         .scalars = MomentumScalarsOf(spec, input)});
}

absl::Status DeviceKernels::ApplyOptimizer(DeviceStream& stream,
                                           const OptimizerSpec& spec,
                                           const StepInput& input,
                                           const DeviceUpdate& update) const {
  const size_t num_elements = update.value_out.size();
  PUSHPULL_CHECK(update.gradient.size() == num_elements && update.value_in.size() == num_elements);
  PUSHPULL_CHECK(update.state.size() == num_elements * StateFloatsPerValue(spec));
  PUSHPULL_CHECK(input.step >= 1);
  const KernelArray gradient{update.gradient.data()};
  const KernelArray value_in{update.value_in.data()};
  const KernelArray value_out{update.value_out.data()};
  const KernelArray first{update.state.data()};
  switch (spec.kind) {
    case OptimizerKind::kSum:
      return Launch(stream,
                    UpdateSumArgs{.extent = ExtentOf(num_elements, {gradient, value_out}),
                                  .gradient = update.gradient.data(),
                                  .value_out = update.value_out.data(),
                                  .scale = static_cast<float>(input.gradient_scale)});
    case OptimizerKind::kSgd:
      return ApplySgd(stream, spec, input, update);
    case OptimizerKind::kAdagrad:
      return Launch(stream,
                    UpdateAdagradArgs{
                        .extent = ExtentOf(num_elements, {gradient, value_in, value_out, first}),
                        .gradient = update.gradient.data(),
                        .value_in = update.value_in.data(),
                        .value_out = update.value_out.data(),
                        .squares = update.state.data(),
                        .scalars = AdagradScalarsOf(spec, input)});
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: {
      float* const second_moment = update.state.data() + num_elements;
      return Launch(
          stream,
          UpdateAdamArgs{.extent = ExtentOf(
                             num_elements, {gradient, value_in, value_out, first, {second_moment}}),
                         .gradient = update.gradient.data(),
                         .value_in = update.value_in.data(),
                         .value_out = update.value_out.data(),
                         .first_moment = update.state.data(),
                         .second_moment = second_moment,
                         .scalars = AdamScalarsOf(spec, input)});
    }
  }
  PUSHPULL_CHECK(IsKnown(spec.kind));
  return absl::OkStatus();
}

}  // namespace pushpull
