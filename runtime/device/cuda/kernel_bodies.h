// SPDX-License-Identifier: Apache-2.0
//
// The kernels as functions of one thread's index in a launch: kernels.cu runs them on the GPU, the
// tests' stand-in for the driver thread by thread on the CPU. A kernel loads lanes of one element
// or of a whole vector and finishes them: it stores results and remembers findings, which it
// reports once at the end. C++17.
#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/device/cuda/element_math.h"
#include "runtime/device/cuda/kernel_args.h"

namespace pushpull {

// One thread among all threads of a launch.
struct KernelThread {
  uint64_t index = 0;
  uint64_t count = 1;
};

template <typename Element, unsigned kWidth>
struct alignas(sizeof(Element) * kWidth) Lanes {
  Element at[kWidth];
};

// On the GPU, one load or store of all bytes of the lanes; the address must be aligned.
template <unsigned kWidth, typename Element>
PUSHPULL_DEVICE Lanes<Element, kWidth> LoadLanes(const Element* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Lanes<Element, kWidth>*>(from);
#else
  Lanes<Element, kWidth> lanes;
  std::memcpy(lanes.at, from, sizeof lanes.at);
  return lanes;
#endif
}

template <unsigned kWidth, typename Element>
PUSHPULL_DEVICE void StoreLanes(Element* to, const Lanes<Element, kWidth>& lanes) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Lanes<Element, kWidth>*>(to) = lanes;
#else
  std::memcpy(to, lanes.at, sizeof lanes.at);
#endif
}

// All threads of a call report to one number; few have anything to report.
PUSHPULL_DEVICE void ReportNotFinite(uint32_t* not_finite) {
#ifdef __CUDA_ARCH__
  atomicOr(not_finite, 1U);
#else
  *not_finite = 1;
#endif
}

PUSHPULL_DEVICE void ReportOverflows(unsigned long long* overflows, unsigned long long count) {
#ifdef __CUDA_ARCH__
  atomicAdd(overflows, count);
#else
  *overflows += count;
#endif
}

struct CopyKernel {
  CopyArgs args;

  template <unsigned kWidth>
  struct Loaded {
    Lanes<float, kWidth> from;
  };
  template <unsigned kWidth>
  PUSHPULL_DEVICE Loaded<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.from + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, const Loaded<kWidth>& loaded) {
    StoreLanes<kWidth>(args.to + i, loaded.from);
  }
  PUSHPULL_DEVICE void Report() const {}
};

// The accumulator and the values that are reduced into it.
template <unsigned kWidth>
struct LoadedPair {
  Lanes<float, kWidth> accumulator;
  Lanes<float, kWidth> x;
};

struct AddScaledKernel {
  AddScaledArgs args;
  bool is_not_finite = false;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedPair<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.accumulator + i), LoadLanes<kWidth>(args.x + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedPair<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& sum = loaded.accumulator.at[lane];
      sum = PlusScaledElement(sum, args.scale, loaded.x.at[lane]);
      is_not_finite |= !IsFiniteFloat(sum);
    }
    StoreLanes<kWidth>(args.accumulator + i, loaded.accumulator);
  }
  PUSHPULL_DEVICE void Report() const {
    if (is_not_finite && args.not_finite != nullptr) ReportNotFinite(args.not_finite);
  }
};

struct MinimumKernel {
  MinimumArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedPair<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.accumulator + i), LoadLanes<kWidth>(args.x + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedPair<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& least = loaded.accumulator.at[lane];
      least = SmallerElement(least, loaded.x.at[lane]);
    }
    StoreLanes<kWidth>(args.accumulator + i, loaded.accumulator);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct MaximumKernel {
  MaximumArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedPair<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.accumulator + i), LoadLanes<kWidth>(args.x + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedPair<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& most = loaded.accumulator.at[lane];
      most = LargerElement(most, loaded.x.at[lane]);
    }
    StoreLanes<kWidth>(args.accumulator + i, loaded.accumulator);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct ScaleKernel {
  ScaleArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<float, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.x + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, Lanes<float, kWidth> x) {
    for (unsigned lane = 0; lane < kWidth; ++lane) x.at[lane] = x.at[lane] * args.scale;
    StoreLanes<kWidth>(args.x + i, x);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct CheckFiniteKernel {
  CheckFiniteArgs args;
  bool is_not_finite = false;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<float, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.x + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t /*i*/, const Lanes<float, kWidth>& x) {
    for (unsigned lane = 0; lane < kWidth; ++lane) is_not_finite |= !IsFiniteFloat(x.at[lane]);
  }
  PUSHPULL_DEVICE void Report() const {
    if (is_not_finite) ReportNotFinite(args.not_finite);
  }
};

struct EncodeFloat16Kernel {
  EncodeFloat16Args args;
  unsigned overflows = 0;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<float, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.values + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, const Lanes<float, kWidth>& values) {
    Lanes<uint16_t, kWidth> halves;
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      halves.at[lane] = Float16OfFloat(values.at[lane]);
      overflows += HasOverflown16(values.at[lane], halves.at[lane], 0x7C00U) ? 1U : 0U;
    }
    StoreLanes<kWidth>(args.halves + i, halves);
  }
  PUSHPULL_DEVICE void Report() const {
    if (overflows > 0) ReportOverflows(args.overflows, overflows);
  }
};

struct EncodeBFloat16Kernel {
  EncodeBFloat16Args args;
  unsigned overflows = 0;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<float, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.values + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, const Lanes<float, kWidth>& values) {
    Lanes<uint16_t, kWidth> halves;
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      halves.at[lane] = BFloat16OfFloat(values.at[lane]);
      overflows += HasOverflown16(values.at[lane], halves.at[lane], 0x7F80U) ? 1U : 0U;
    }
    StoreLanes<kWidth>(args.halves + i, halves);
  }
  PUSHPULL_DEVICE void Report() const {
    if (overflows > 0) ReportOverflows(args.overflows, overflows);
  }
};

struct DecodeFloat16Kernel {
  DecodeFloat16Args args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<uint16_t, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.halves + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, const Lanes<uint16_t, kWidth>& halves) {
    Lanes<float, kWidth> values;
    for (unsigned lane = 0; lane < kWidth; ++lane)
      values.at[lane] = FloatOfFloat16(halves.at[lane]);
    StoreLanes<kWidth>(args.values + i, values);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct DecodeBFloat16Kernel {
  DecodeBFloat16Args args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<uint16_t, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.halves + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, const Lanes<uint16_t, kWidth>& halves) {
    Lanes<float, kWidth> values;
    for (unsigned lane = 0; lane < kWidth; ++lane)
      values.at[lane] = FloatOfBFloat16(halves.at[lane]);
    StoreLanes<kWidth>(args.values + i, values);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct UpdateSumKernel {
  UpdateSumArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE Lanes<float, kWidth> Load(uint64_t i) const {
    return LoadLanes<kWidth>(args.gradient + i);
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, Lanes<float, kWidth> gradient) {
    for (unsigned lane = 0; lane < kWidth; ++lane)
      gradient.at[lane] = args.scale * gradient.at[lane];
    StoreLanes<kWidth>(args.value_out + i, gradient);
  }
  PUSHPULL_DEVICE void Report() const {}
};

// What an update reads, with up to two floats of state per value.
template <unsigned kWidth>
struct LoadedUpdate {
  Lanes<float, kWidth> gradient;
  Lanes<float, kWidth> value;
};

template <unsigned kWidth>
struct LoadedUpdate1 {
  Lanes<float, kWidth> gradient;
  Lanes<float, kWidth> value;
  Lanes<float, kWidth> state;
};

template <unsigned kWidth>
struct LoadedUpdate2 {
  Lanes<float, kWidth> gradient;
  Lanes<float, kWidth> value;
  Lanes<float, kWidth> first;
  Lanes<float, kWidth> second;
};

struct UpdateSgdKernel {
  UpdateSgdArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedUpdate<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.gradient + i), LoadLanes<kWidth>(args.value_in + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedUpdate<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& value = loaded.value.at[lane];
      value = SgdElement(args.scalars, loaded.gradient.at[lane], value);
    }
    StoreLanes<kWidth>(args.value_out + i, loaded.value);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct UpdateMomentumKernel {
  UpdateMomentumArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedUpdate1<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.gradient + i),
            LoadLanes<kWidth>(args.value_in + i),
            LoadLanes<kWidth>(args.momentum + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedUpdate1<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& value = loaded.value.at[lane];
      value = MomentumElement(args.scalars, loaded.gradient.at[lane], value, loaded.state.at[lane]);
    }
    StoreLanes<kWidth>(args.momentum + i, loaded.state);
    StoreLanes<kWidth>(args.value_out + i, loaded.value);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct UpdateAdagradKernel {
  UpdateAdagradArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedUpdate1<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.gradient + i),
            LoadLanes<kWidth>(args.value_in + i),
            LoadLanes<kWidth>(args.squares + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedUpdate1<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& value = loaded.value.at[lane];
      value = AdagradElement(args.scalars, loaded.gradient.at[lane], value, loaded.state.at[lane]);
    }
    StoreLanes<kWidth>(args.squares + i, loaded.state);
    StoreLanes<kWidth>(args.value_out + i, loaded.value);
  }
  PUSHPULL_DEVICE void Report() const {}
};

struct UpdateAdamKernel {
  UpdateAdamArgs args;

  template <unsigned kWidth>
  PUSHPULL_DEVICE LoadedUpdate2<kWidth> Load(uint64_t i) const {
    return {LoadLanes<kWidth>(args.gradient + i),
            LoadLanes<kWidth>(args.value_in + i),
            LoadLanes<kWidth>(args.first_moment + i),
            LoadLanes<kWidth>(args.second_moment + i)};
  }
  template <unsigned kWidth>
  PUSHPULL_DEVICE void Finish(uint64_t i, LoadedUpdate2<kWidth> loaded) {
    for (unsigned lane = 0; lane < kWidth; ++lane) {
      float& value = loaded.value.at[lane];
      value = AdamElement(args.scalars,
                          loaded.gradient.at[lane],
                          value,
                          loaded.first.at[lane],
                          loaded.second.at[lane]);
    }
    StoreLanes<kWidth>(args.first_moment + i, loaded.first);
    StoreLanes<kWidth>(args.second_moment + i, loaded.second);
    StoreLanes<kWidth>(args.value_out + i, loaded.value);
  }
  PUSHPULL_DEVICE void Report() const {}
};

// One thread's part: vectors at a stride of the thread count, kUnroll of them at once, so that
// neighbouring threads access neighbouring memory; then single elements of the rest.
template <typename Kernel, typename Args>
PUSHPULL_DEVICE void RunKernel(const Args& args, KernelThread thread) {
  constexpr unsigned kUnroll = Args::kUnroll;
  Kernel kernel{args};
  const uint64_t num_vectors = args.extent.num_vectors;
  uint64_t vector = thread.index;
  for (; vector + (kUnroll - 1) * thread.count < num_vectors; vector += kUnroll * thread.count) {
    decltype(kernel.template Load<kVectorWidth>(0)) loaded[kUnroll];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (unsigned k = 0; k < kUnroll; ++k)
      loaded[k] = kernel.template Load<kVectorWidth>((vector + k * thread.count) * kVectorWidth);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (unsigned k = 0; k < kUnroll; ++k)
      kernel.template Finish<kVectorWidth>((vector + k * thread.count) * kVectorWidth, loaded[k]);
  }
  for (; vector < num_vectors; vector += thread.count) {
    const auto loaded = kernel.template Load<kVectorWidth>(vector * kVectorWidth);
    kernel.template Finish<kVectorWidth>(vector * kVectorWidth, loaded);
  }
  uint64_t i = num_vectors * kVectorWidth + thread.index;
  for (; i < args.extent.num_elements; i += thread.count)
    kernel.template Finish<1>(i, kernel.template Load<1>(i));
  kernel.Report();
}

}  // namespace pushpull
