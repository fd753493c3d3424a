// SPDX-License-Identifier: Apache-2.0
#include "runtime/optim/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/optim/kernels.h"

namespace pushpull {
namespace {

// Far below any epsilon in use, and yet nonzero as a float32 after Adam has multiplied it by the
// root of 1 - beta2, which is at least 1e-8. With a zero there, a gradient that is always 0 would
// give 0 / 0.
constexpr double kEpsilonMin = 1e-30;

bool IsAdam(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

bool UsesEpsilon(OptimizerKind kind) {
  return kind == OptimizerKind::kAdagrad || IsAdam(kind);
}

absl::Status FieldError(absl::string_view field, absl::string_view must, double value) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": must be ", must, ", is ", value));
}

// A setting that the kind does not have must be 0; otherwise someone expects an effect that it
// lacks.
absl::Status ExpectUnused(absl::string_view field, const OptimizerSpec& spec, double value) {
  if (value == 0) return absl::OkStatus();
  return FieldError(field, absl::StrCat("0 with ", ToString(spec.kind)), value);
}

absl::Status ExpectFraction(absl::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return FieldError(field, "at least 0 and below 1", value);
}

absl::Status ValidateMomentum(const OptimizerSpec& spec) {
  if (spec.kind != OptimizerKind::kSgd) {
    PUSHPULL_RETURN_IF_ERROR(ExpectUnused("momentum", spec, spec.momentum));
    return ExpectUnused("nesterov", spec, spec.nesterov ? 1 : 0);
  }
  PUSHPULL_RETURN_IF_ERROR(ExpectFraction("momentum", spec.momentum));
  if (spec.nesterov && spec.momentum == 0) {
    return absl::InvalidArgumentError("nesterov: needs a momentum above 0, which is 0");
  }
  return absl::OkStatus();
}

// b^exponent by repeated squaring. Not std::pow: the C library chooses among implementations by the
// processor, and members of a replica set must agree in every bit.
double Power(double base, uint64_t exponent) {
  double power = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) power *= square;
  }
  return power;
}

}  // namespace

SgdScalars SgdScalarsOf(const OptimizerSpec& spec, const StepInput& input) {
  return {.gradient = {.gradient_scale = static_cast<float>(input.gradient_scale),
                       .l2 = static_cast<float>(spec.weight_decay)},
          .learning_rate = static_cast<float>(input.learning_rate)};
}

MomentumScalars MomentumScalarsOf(const OptimizerSpec& spec, const StepInput& input) {
  const SgdScalars sgd = SgdScalarsOf(spec, input);
  return {.gradient = sgd.gradient,
          .learning_rate = sgd.learning_rate,
          .momentum = static_cast<float>(spec.momentum),
          .nesterov = spec.nesterov};
}

AdagradScalars AdagradScalarsOf(const OptimizerSpec& spec, const StepInput& input) {
  const SgdScalars sgd = SgdScalarsOf(spec, input);
  return {.gradient = sgd.gradient,
          .learning_rate = sgd.learning_rate,
          .epsilon = static_cast<float>(spec.epsilon)};
}

AdamScalars AdamScalarsOf(const OptimizerSpec& spec, const StepInput& input) {
  const bool is_decoupled = spec.kind == OptimizerKind::kAdamW;
  const double correction1 = 1 - Power(spec.beta1, input.step);
  const double root_correction2 = std::sqrt(1 - Power(spec.beta2, input.step));
  return {
      .gradient = {.gradient_scale = static_cast<float>(input.gradient_scale),
                   .l2 = is_decoupled ? 0.0F : static_cast<float>(spec.weight_decay)},
      .value_scale =
          is_decoupled ? static_cast<float>(1 - input.learning_rate * spec.weight_decay) : 1.0F,
      .beta1 = static_cast<float>(spec.beta1),
      .one_minus_beta1 = static_cast<float>(1 - spec.beta1),
      .beta2 = static_cast<float>(spec.beta2),
      .one_minus_beta2 = static_cast<float>(1 - spec.beta2),
      .step_size = static_cast<float>(input.learning_rate * root_correction2 / correction1),
      .epsilon = static_cast<float>(spec.epsilon * root_correction2),
  };
}

absl::Status Validate(const OptimizerSpec& spec) {
  if (!IsKnown(spec.kind)) {
    return FieldError("kind", "the number of an optimizer", static_cast<double>(spec.kind));
  }
  PUSHPULL_RETURN_IF_ERROR(ValidateMomentum(spec));
  if (spec.kind == OptimizerKind::kSum) {
    return ExpectUnused("weight_decay", spec, spec.weight_decay);
  }
  // Written so that NaN fails too.
  if (!(spec.learning_rate > 0 && spec.learning_rate <= std::numeric_limits<float>::max())) {
    return FieldError("learning_rate", "above 0 and finite in float32", spec.learning_rate);
  }
  if (!(spec.weight_decay >= 0 && std::isfinite(spec.weight_decay))) {
    return FieldError("weight_decay", "at least 0 and finite", spec.weight_decay);
  }
  if (IsAdam(spec.kind)) {
    PUSHPULL_RETURN_IF_ERROR(ExpectFraction("beta1", spec.beta1));
    PUSHPULL_RETURN_IF_ERROR(ExpectFraction("beta2", spec.beta2));
  }
  if (UsesEpsilon(spec.kind) && !(spec.epsilon >= kEpsilonMin && std::isfinite(spec.epsilon))) {
    return FieldError(
        "epsilon", absl::StrCat("at least ", kEpsilonMin, " and finite"), spec.epsilon);
  }
  return absl::OkStatus();
}

std::string ToString(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSum:
      return "sum";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
  }
  return absl::StrCat("optimizer ", static_cast<unsigned>(kind));
}

std::string ToString(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kSum) return ToString(spec.kind);
  std::vector<std::string> settings = {absl::StrCat("learning_rate=", spec.learning_rate)};
  if (spec.momentum != 0) settings.push_back(absl::StrCat("momentum=", spec.momentum));
  if (spec.nesterov) settings.push_back("nesterov");
  if (spec.weight_decay != 0) settings.push_back(absl::StrCat("weight_decay=", spec.weight_decay));
  if (IsAdam(spec.kind)) {
    settings.push_back(absl::StrCat("beta1=", spec.beta1));
    settings.push_back(absl::StrCat("beta2=", spec.beta2));
  }
  if (UsesEpsilon(spec.kind)) settings.push_back(absl::StrCat("epsilon=", spec.epsilon));
  return absl::StrCat(ToString(spec.kind), "(", absl::StrJoin(settings, ", "), ")");
}

size_t StateFloatsPerValue(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerKind::kSum:
      return 0;
    case OptimizerKind::kSgd:
      return spec.momentum == 0 ? 0 : 1;
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return 2;
  }
  PUSHPULL_CHECK(IsKnown(spec.kind));
  return 0;
}

OptimizerSpec OptimizerOfRows(const OptimizerSpec& spec, uint64_t step) {
  OptimizerSpec of_rows = spec;
  if (IsAdam(spec.kind)) of_rows.epsilon /= std::sqrt(1 - Power(spec.beta2, step));
  return of_rows;
}

void ApplyOptimizer(const OptimizerSpec& spec,
                    const StepInput& input,
                    std::span<const float> gradient,
                    std::span<const float> value_in,
                    std::span<float> value_out,
                    std::span<float> state) {
  const size_t num_elements = value_out.size();
  PUSHPULL_CHECK(gradient.size() == num_elements && value_in.size() == num_elements);
  PUSHPULL_CHECK(state.size() == num_elements * StateFloatsPerValue(spec));
  PUSHPULL_CHECK(input.step >= 1);
  const UpdateMemory memory{.num_elements = num_elements,
                            .gradient = gradient.data(),
                            .value_in = value_in.data(),
                            .value_out = value_out.data()};
  switch (spec.kind) {
    case OptimizerKind::kSum:
      return UpdateSum(memory, static_cast<float>(input.gradient_scale));
    case OptimizerKind::kSgd:
      if (spec.momentum == 0) return UpdateSgd(memory, SgdScalarsOf(spec, input));
      // PyTorch's first step sets b = g; here b starts at 0, and momentum 0 + g is the same.
      return UpdateMomentum(memory, MomentumScalarsOf(spec, input), state.data());
    case OptimizerKind::kAdagrad:
      return UpdateAdagrad(memory, AdagradScalarsOf(spec, input), state.data());
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return UpdateAdam(
          memory, AdamScalarsOf(spec, input), state.data(), state.data() + num_elements);
  }
}

}  // namespace pushpull
