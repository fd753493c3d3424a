// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/value_rules.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

// For a type whose values are not sent as float32; empty: no obstacle.
std::string InTheWayOfType(const TensorSpec& tensor) {
  if (tensor.codec == Codec::kNone) return "";
  return absl::StrCat("takes no codec, which is ",
                      ToString(tensor.codec),
                      ": its gradients have two bytes a value already; use none");
}

// For a product, a logical AND or OR; empty: no obstacle.
std::string InTheWayOfReduction(const TensorSpec& tensor, const Consistency& consistency) {
  if (tensor.optimizer.kind != OptimizerKind::kSum)
    return "needs the optimizer Sum: it makes no gradient that an optimizer could apply";
  if (tensor.codec != Codec::kNone)
    return absl::StrCat("needs codec none, which is ", ToString(tensor.codec));
  if (tensor.clip_norm != 0) return absl::StrCat("needs clip_norm 0, which is ", tensor.clip_norm);
  if (!consistency.is_sync()) {
    return absl::StrCat("needs spec.sync.mode Sync, which is ",
                        NameOf(consistency.mode),
                        ": there each push is a step of its own");
  }
  return "";
}

absl::Status Refused(const TensorSpec& tensor,
                     const std::string& what,
                     const std::string& in_the_way) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", tensor.name, "\": ", what, " ", in_the_way));
}

}  // namespace

absl::Status CheckValueTypes(std::span<const TensorSpec> tensors, const Consistency& consistency) {
  for (const TensorSpec& tensor : tensors) {
    if (!IsMaster(tensor.dtype)) {
      const std::string in_the_way = InTheWayOfType(tensor);
      if (!in_the_way.empty())
        return Refused(tensor, absl::StrCat("dtype ", ToString(tensor.dtype)), in_the_way);
    }
    if (tensor.reduction > Reduction::kMax) {
      const std::string in_the_way = InTheWayOfReduction(tensor, consistency);
      if (!in_the_way.empty())
        return Refused(tensor, absl::StrCat("reduction ", ToString(tensor.reduction)), in_the_way);
    }
  }
  return absl::OkStatus();
}

}  // namespace pushpull
