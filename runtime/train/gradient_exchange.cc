// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/gradient_exchange.h"

#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using torch::autograd::utils::LambdaPostHook;

std::span<float> Values(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

struct GradientExchange::Parameter {
  std::string name;
  torch::Tensor value;
  // Autograd's node that stores the gradient; it lives only as long as somebody holds it.
  std::shared_ptr<Node> accumulator;
  uintptr_t hook = 0;
  torch::Tensor gradient;  // what is being pushed, held until the push is done
  std::optional<PushHandle> pending;
};

GradientExchange::GradientExchange(Job& job, const torch::nn::Module& network) : job_(job) {
  for (const auto& item : network.named_parameters()) {
    const torch::Tensor& value = item.value();
    if (!value.requires_grad()) continue;
    PUSHPULL_CHECK(value.is_contiguous() && value.device().is_cpu() &&
                   value.scalar_type() == torch::kFloat32);
    auto parameter = std::make_unique<Parameter>();
    parameter->name = item.key();
    parameter->value = value;
    parameter->accumulator = torch::autograd::impl::grad_accumulator(value);
    // A hook that runs after the gradient is stored, as in PyTorch's DistributedDataParallel: a
    // hook before would hold a second reference, which makes autograd copy the gradient.
    parameter->hook = parameter->accumulator->add_post_hook(std::make_unique<LambdaPostHook>(
        [this, raw = parameter.get()](const variable_list& outputs, const variable_list&) {
          raw->gradient = raw->value.grad();
          Push(*raw);
          return outputs;
        }));
    parameters_.push_back(std::move(parameter));
  }
}

GradientExchange::~GradientExchange() {
  for (const auto& parameter : parameters_) parameter->accumulator->del_post_hook(parameter->hook);
}

absl::Status GradientExchange::Register(const OptimizerSpec& optimizer,
                                        Codec codec,
                                        Deadline deadline) {
  std::vector<TensorRegistration> registrations;
  for (const auto& parameter : parameters_) {
    // named_parameters() has the order of the forward pass, which thus becomes their priority.
    registrations.push_back({.spec = {.name = parameter->name,
                                      .dims = parameter->value.sizes().vec(),
                                      .optimizer = optimizer,
                                      .codec = codec},
                             .value = Values(parameter->value)});
  }
  return job_.Register(registrations, deadline);
}

void GradientExchange::BeginStep(const PushOptions& options) {
  options_ = options;
}

void GradientExchange::Push(Parameter& parameter) {
  if (!push_status_.ok()) return;
  parameter.gradient = parameter.gradient.contiguous();
  const std::span<float> gradient = Values(parameter.gradient);
  if (is_poisoned_ && &parameter == parameters_.front().get()) {
    gradient[0] = std::numeric_limits<float>::quiet_NaN();
    is_poisoned_ = false;
  }
  absl::StatusOr<PushHandle> pending =
      job_.PushPull(parameter.name, gradient, Values(parameter.value), options_);
  if (pending.ok()) {
    parameter.pending = *std::move(pending);
  } else {
    push_status_ = std::move(pending).status();
  }
}

void GradientExchange::PushZeros() {
  for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
    (*parameter)->gradient = torch::zeros_like((*parameter)->value);
    Push(**parameter);
  }
}

absl::Status GradientExchange::FinishStep(Deadline deadline) {
  PUSHPULL_RETURN_IF_ERROR(push_status_);
  for (const auto& parameter : parameters_) {
    if (!parameter->pending.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("backward gave parameter \"", parameter->name, "\" no gradient"));
    }
    PUSHPULL_RETURN_IF_ERROR(parameter->pending->Wait(deadline));
  }
  for (const auto& parameter : parameters_) {
    parameter->pending.reset();
    parameter->gradient.reset();
    // Undefined, so that autograd moves the next gradient in instead of adding it to this one.
    parameter->value.mutable_grad().reset();
  }
  return absl::OkStatus();
}

}  // namespace pushpull
