// SPDX-License-Identifier: Apache-2.0
//
// Arrays that a Python program passes: NumPy, torch and anything with DLPack or the buffer
// protocol, used without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pushpull/collectives.h"
#include "pushpull/tensor_values.h"

namespace pushpull::python {

// Any array, read-only or not.
using Array = nanobind::ndarray<nanobind::ro>;

enum class Access { kRead, kWrite };

// The memory of an array. `owner` keeps it allocated and is released with the interpreter lock
// held.
struct ArrayArgument {
  Array owner;
  std::vector<int64_t> dims;
  TensorValues values;
};

// Takes a C-contiguous array in CPU memory, of a dtype that tensors have. `what` begins every error
// text, e.g. `tensor "w": gradient`. Throws nanobind::type_error (no array, another dtype) or
// nanobind::value_error (not contiguous, read-only, another device), which say what was expected
// and what was passed.
ArrayArgument TakeArray(nanobind::handle array, const std::string& what, Access access);
// The same for this shape and dtype; nanobind::value_error for another shape.
ArrayArgument TakeArray(nanobind::handle array,
                        const std::string& what,
                        Access access,
                        const std::vector<int64_t>& wanted,
                        DType dtype = DType::kFloat32);

// The memory of an array with one of the element types of collectives; bool is uint8.
struct ValuesArgument {
  Array owner;
  std::vector<int64_t> dims;
  ArrayValues values;
  bool is_bool = false;
};

// Takes a C-contiguous array in CPU memory, of a dtype that collectives have. Throws like
// TakeArray.
ValuesArgument TakeValues(nanobind::handle array, const std::string& what, Access access);

// The keys of rows.
struct KeysArgument {
  Array owner;
  std::span<const uint64_t> keys;
};

// Takes a one-dimensional C-contiguous array of uint64 or int64 in CPU memory. Throws like
// TakeArray, and nanobind::value_error for a key below 0, which it names.
KeysArgument TakeKeys(nanobind::handle array, const std::string& what);

// A shape as Python writes it: (), (3,), (3, 4).
std::string ShapeText(std::span<const int64_t> dims);

}  // namespace pushpull::python
