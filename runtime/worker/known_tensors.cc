// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/known_tensors.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/tensor/dtype.h"

namespace pushpull {
namespace {

ValueShape ShapeOf(const RegisteredTensor& tensor) {
  const DType dtype = tensor.spec.dtype;
  return {.dtype = dtype, .num_values = tensor.value.bytes().size() / DTypeBytes(dtype)};
}

}  // namespace

absl::Status CheckFits(const std::string& name,
                       const ValueShape& shape,
                       absl::string_view what,
                       const ConstTensorValues& values) {
  const bool is_known = IsKnown(values.dtype());
  const size_t given = is_known ? values.bytes().size() / DTypeBytes(values.dtype()) : 0;
  if (values.dtype() == shape.dtype && given == shape.num_values) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 name,
                                                 "\" has ",
                                                 shape.num_values,
                                                 " values of ",
                                                 ToString(shape.dtype),
                                                 ", got ",
                                                 what,
                                                 " of ",
                                                 given,
                                                 " values of ",
                                                 ToString(values.dtype())));
}

KnownTensors::KnownTensors(const Registration& registration) {
  for (size_t i = 0; i < registration.tensors().size(); ++i) {
    const RegisteredTensor& tensor = registration.tensors()[i];
    KnownTensor& known = tensors_[tensor.spec.name];
    known = {.name = std::make_shared<const std::string>(tensor.spec.name),
             .index = registration.places()[i],
             .shape = ShapeOf(tensor),
             .state_floats = StateFloatsPerValue(tensor.spec.optimizer),
             .priority = tensor.priority,
             .keeps_value = tensor.keeps_value};
    if (tensor.first_rows) known.rows = RowTensorOf(tensor.spec);
  }
}

const std::string& KnownTensors::NameAt(size_t index) const {
  return absl::c_find_if(tensors_, [&](const auto& known) { return known.second.index == index; })
      ->first;
}

absl::StatusOr<const KnownTensor*> KnownTensors::Find(absl::string_view name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return &it->second;
  return absl::NotFoundError(absl::StrCat("tensor \"", name, "\" is not registered"));
}

absl::StatusOr<const KnownTensor*> KnownTensors::FindFor(absl::string_view name,
                                                         absl::string_view what,
                                                         const ConstTensorValues& values) const {
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, FindDense(name));
  PUSHPULL_RETURN_IF_ERROR(CheckFits(*tensor->name, tensor->shape, what, values));
  return tensor;
}

absl::StatusOr<const KnownTensor*> KnownTensors::FindDense(absl::string_view name) const {
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, Find(name));
  if (!tensor->rows) return tensor;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", name, "\" is row-sparse: push and pull rows of it"));
}

absl::StatusOr<const KnownTensor*> KnownTensors::FindRows(absl::string_view name) const {
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, Find(name));
  if (tensor->rows) return tensor;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", name, "\" is dense: push and pull all of it"));
}

}  // namespace pushpull
