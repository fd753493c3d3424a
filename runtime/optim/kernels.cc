// SPDX-License-Identifier: Apache-2.0
#include "runtime/optim/kernels.h"

// Highway compiles the code between BEFORE and AFTER once for each instruction set by including
// this file repeatedly; the functions below HWY_ONCE pick one at run time. The order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/optim/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Calls update(tag, i) for the vector of elements from i on, then one by one for the rest, which
// gives the same bits.
template <class Update>
HWY_INLINE void ForEachVector(size_t num_elements, const Update& update) {
  const hn::ScalableTag<float> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= num_elements; i += lanes) update(tag, i);
  for (; i < num_elements; ++i) update(hn::CappedTag<float, 1>(), i);
}

// a + scale b in two roundings. Not hn::MulAdd, which rounds only once if the machine can.
template <class D>
HWY_INLINE hn::Vec<D> PlusScaled(D tag, hn::Vec<D> a, float scale, hn::Vec<D> b) {
  return hn::Add(a, hn::Mul(hn::Set(tag, scale), b));
}

template <class D>
HWY_INLINE hn::Vec<D> Scaled(D tag, float scale, hn::Vec<D> a) {
  return hn::Mul(hn::Set(tag, scale), a);
}

template <class D>
HWY_INLINE hn::Vec<D> GradientAt(D tag,
                                 const UpdateMemory& memory,
                                 const GradientTerms& terms,
                                 size_t i) {
  const auto gradient = hn::LoadU(tag, memory.gradient + i);
  const auto value = hn::LoadU(tag, memory.value_in + i);
  return PlusScaled(tag, Scaled(tag, terms.gradient_scale, gradient), terms.l2, value);
}

// The loops copy the scalars they read, so that no store can change them.
void SumKernel(const UpdateMemory& memory, float scale) {
  ForEachVector(memory.num_elements, [memory, scale](auto tag, size_t i) HWY_ATTR {
    const auto gradient = hn::LoadU(tag, memory.gradient + i);
    hn::StoreU(Scaled(tag, scale, gradient), tag, memory.value_out + i);
  });
}

void SgdKernel(const UpdateMemory& memory, const SgdScalars& scalars) {
  ForEachVector(memory.num_elements, [memory, scalars](auto tag, size_t i) HWY_ATTR {
    const auto gradient = GradientAt(tag, memory, scalars.gradient, i);
    const auto value = hn::LoadU(tag, memory.value_in + i);
    const auto next = PlusScaled(tag, value, -scalars.learning_rate, gradient);
    hn::StoreU(next, tag, memory.value_out + i);
  });
}

void MomentumKernel(const UpdateMemory& memory, const MomentumScalars& scalars, float* momentum) {
  ForEachVector(memory.num_elements, [memory, scalars, momentum](auto tag, size_t i) HWY_ATTR {
    const auto gradient = GradientAt(tag, memory, scalars.gradient, i);
    const auto old_momentum = hn::LoadU(tag, momentum + i);
    const auto new_momentum = PlusScaled(tag, gradient, scalars.momentum, old_momentum);
    const auto direction =
        scalars.nesterov ? PlusScaled(tag, gradient, scalars.momentum, new_momentum) : new_momentum;
    const auto value = hn::LoadU(tag, memory.value_in + i);
    const auto next = PlusScaled(tag, value, -scalars.learning_rate, direction);
    hn::StoreU(new_momentum, tag, momentum + i);
    hn::StoreU(next, tag, memory.value_out + i);
  });
}

void AdagradKernel(const UpdateMemory& memory, const AdagradScalars& scalars, float* squares) {
  ForEachVector(memory.num_elements, [memory, scalars, squares](auto tag, size_t i) HWY_ATTR {
    const auto gradient = GradientAt(tag, memory, scalars.gradient, i);
    const auto sum = hn::Add(hn::LoadU(tag, squares + i), hn::Mul(gradient, gradient));
    const auto root = hn::Add(hn::Sqrt(sum), hn::Set(tag, scalars.epsilon));
    const auto value = hn::LoadU(tag, memory.value_in + i);
    const auto next = PlusScaled(tag, value, -scalars.learning_rate, hn::Div(gradient, root));
    hn::StoreU(sum, tag, squares + i);
    hn::StoreU(next, tag, memory.value_out + i);
  });
}

void AdamKernel(const UpdateMemory& memory,
                const AdamScalars& scalars,
                float* first_moment,
                float* second_moment) {
  ForEachVector(
      memory.num_elements,
      [memory, scalars, first_moment, second_moment](auto tag, size_t i) HWY_ATTR {
        const auto old_first = Scaled(tag, scalars.beta1, hn::LoadU(tag, first_moment + i));
        const auto old_second = Scaled(tag, scalars.beta2, hn::LoadU(tag, second_moment + i));
        const auto gradient = GradientAt(tag, memory, scalars.gradient, i);
        const auto first = PlusScaled(tag, old_first, scalars.one_minus_beta1, gradient);
        const auto square = hn::Mul(gradient, gradient);
        const auto second = PlusScaled(tag, old_second, scalars.one_minus_beta2, square);
        const auto root = hn::Add(hn::Sqrt(second), hn::Set(tag, scalars.epsilon));
        const auto value = Scaled(tag, scalars.value_scale, hn::LoadU(tag, memory.value_in + i));
        const auto next = PlusScaled(tag, value, -scalars.step_size, hn::Div(first, root));
        hn::StoreU(first, tag, first_moment + i);
        hn::StoreU(second, tag, second_moment + i);
        hn::StoreU(next, tag, memory.value_out + i);
      });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

HWY_EXPORT(SumKernel);
HWY_EXPORT(SgdKernel);
HWY_EXPORT(MomentumKernel);
HWY_EXPORT(AdagradKernel);
HWY_EXPORT(AdamKernel);

void UpdateSum(const UpdateMemory& memory, float scale) {
  HWY_DYNAMIC_DISPATCH(SumKernel)(memory, scale);
}

void UpdateSgd(const UpdateMemory& memory, const SgdScalars& scalars) {
  HWY_DYNAMIC_DISPATCH(SgdKernel)(memory, scalars);
}

void UpdateMomentum(const UpdateMemory& memory, const MomentumScalars& scalars, float* momentum) {
  HWY_DYNAMIC_DISPATCH(MomentumKernel)(memory, scalars, momentum);
}

void UpdateAdagrad(const UpdateMemory& memory, const AdagradScalars& scalars, float* squares) {
  HWY_DYNAMIC_DISPATCH(AdagradKernel)(memory, scalars, squares);
}

void UpdateAdam(const UpdateMemory& memory,
                const AdamScalars& scalars,
                float* first_moment,
                float* second_moment) {
  HWY_DYNAMIC_DISPATCH(AdamKernel)(memory, scalars, first_moment, second_moment);
}

}  // namespace pushpull
#endif  // HWY_ONCE
