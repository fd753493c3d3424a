// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernel image, which the host finds by name (kernel_args.h). Compiled by
// nvcc to machine code for several GPUs (CMakeLists.txt).
#include "runtime/device/cuda/kernel_bodies.h"

namespace pushpull {
namespace {

__device__ __forceinline__ KernelThread ThisThread() {
  const uint64_t index = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  return {index, uint64_t{gridDim.x} * blockDim.x};
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_copy(const CopyArgs args) {
  RunKernel<CopyKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_add_scaled(const AddScaledArgs args) {
  RunKernel<AddScaledKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_minimum(const MinimumArgs args) {
  RunKernel<MinimumKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_maximum(const MaximumArgs args) {
  RunKernel<MaximumKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_scale(const ScaleArgs args) {
  RunKernel<ScaleKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_check_finite(const CheckFiniteArgs args) {
  RunKernel<CheckFiniteKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_encode_float16(const EncodeFloat16Args args) {
  RunKernel<EncodeFloat16Kernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_encode_bfloat16(const EncodeBFloat16Args args) {
  RunKernel<EncodeBFloat16Kernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_decode_float16(const DecodeFloat16Args args) {
  RunKernel<DecodeFloat16Kernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_decode_bfloat16(const DecodeBFloat16Args args) {
  RunKernel<DecodeBFloat16Kernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_update_sum(const UpdateSumArgs args) {
  RunKernel<UpdateSumKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock) pushpull_update_sgd(const UpdateSgdArgs args) {
  RunKernel<UpdateSgdKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_update_momentum(const UpdateMomentumArgs args) {
  RunKernel<UpdateMomentumKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_update_adagrad(const UpdateAdagradArgs args) {
  RunKernel<UpdateAdagradKernel>(args, ThisThread());
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    pushpull_update_adam(const UpdateAdamArgs args) {
  RunKernel<UpdateAdamKernel>(args, ThisThread());
}

}  // extern "C"

}  // namespace pushpull
