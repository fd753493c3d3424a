// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/tensor_roles.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/checkpoint/manifest.h"

namespace pushpull {
namespace {

constexpr char kOptimizers[] = "pushpull-torch optimizers";
constexpr char kGradient[] = ".gradient";

// Whether it is pushed for checkpoints only: a parameter, or a tensor of an optimizer.
bool IsKept(const TensorSpec& tensor) {
  return tensor.optimizer.kind == OptimizerKind::kSum && tensor.reduction == Reduction::kMax;
}

// "w" of "w.exp_avg", if that is kept too; "w" may have dots of its own. Empty: there is none.
std::string OwnerOf(const std::string& name, const absl::flat_hash_set<std::string>& kept) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    if (kept.contains(name.substr(0, dot))) return name.substr(0, dot);
  }
  return "";
}

CheckpointTensor WithRole(const TensorSpec& spec, const absl::flat_hash_set<std::string>& kept) {
  CheckpointTensor tensor{.spec = spec};
  const std::string owner = OwnerOf(spec.name, kept);
  const bool is_gradient = !owner.empty() && spec.name == absl::StrCat(owner, kGradient);
  if (IsOfLibrary(spec.name) || (is_gradient && !IsKept(spec))) {
    tensor.role = TensorRole::kInternal;
  } else if (!owner.empty() && IsKept(spec)) {
    tensor.role = TensorRole::kOptimizerState;
    tensor.owner = owner;
    tensor.key = spec.name.substr(owner.size() + 1);
  }
  return tensor;
}

}  // namespace

bool HoldProgramState(std::span<const TensorSpec> tensors) {
  return absl::c_any_of(
      tensors, [](const TensorSpec& spec) { return IsKept(spec) && !IsOfLibrary(spec.name); });
}

std::vector<CheckpointTensor> WithRoles(std::span<const TensorSpec> tensors) {
  absl::flat_hash_set<std::string> kept;
  const bool has_optimizers =
      absl::c_any_of(tensors, [](const TensorSpec& spec) { return spec.name == kOptimizers; });
  for (const TensorSpec& spec : tensors)
    if (has_optimizers && IsKept(spec) && !IsOfLibrary(spec.name)) kept.insert(spec.name);
  std::vector<CheckpointTensor> all;
  for (const TensorSpec& spec : tensors)
    if (!absl::StartsWith(spec.name, "pushpull.")) all.push_back(WithRole(spec, kept));
  return all;
}

}  // namespace pushpull
