// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a worker has registered, by name, and whether a program's arrays fit them. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/worker/registration.h"

namespace pushpull {

// Type and size of a tensor's gradients and values.
struct ValueShape {
  DType dtype = DType::kFloat32;
  uint64_t num_values = 0;
};

// `what`: "gradient" or "out". kInvalidArgument: wrong number or type of values.
absl::Status CheckFits(const std::string& name,
                       const ValueShape& shape,
                       absl::string_view what,
                       const ConstTensorValues& values);

struct KnownTensor {
  std::shared_ptr<const std::string> name;
  size_t index = 0;  // in the job's list
  ValueShape shape;
  size_t state_floats = 0;  // optimizer state, per value
  uint8_t priority = 0;
  bool keeps_value = true;
  std::optional<RowTensor> rows = {};
};

// Thread-compatible.
class KnownTensors {
 public:
  KnownTensors() = default;
  explicit KnownTensors(const Registration& registration);

  bool empty() const { return tensors_.empty(); }
  size_t size() const { return tensors_.size(); }
  // kNotFound: no such tensor.
  absl::StatusOr<const KnownTensor*> Find(absl::string_view name) const;
  // Also kInvalidArgument: the tensor is row-sparse, or dense.
  absl::StatusOr<const KnownTensor*> FindDense(absl::string_view name) const;
  absl::StatusOr<const KnownTensor*> FindRows(absl::string_view name) const;
  // A dense tensor that `values`, a gradient or `out`, fit.
  absl::StatusOr<const KnownTensor*> FindFor(absl::string_view name,
                                             absl::string_view what,
                                             const ConstTensorValues& values) const;
  // Of the tensor at `index`. Linear in the number of tensors.
  const std::string& NameAt(size_t index) const;

 private:
  absl::flat_hash_map<std::string, KnownTensor> tensors_;
};

}  // namespace pushpull
