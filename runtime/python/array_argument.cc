// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/array_argument.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull::python {
namespace {

namespace nb = nanobind;

constexpr int kCpuDevices[] = {nb::device::cpu::value, nb::device::cuda_host::value};

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

std::string DTypeName(nb::dlpack::dtype dtype) {
  const auto kind = [&]() -> std::string {
    switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
      case nb::dlpack::dtype_code::Int:
        return "int";
      case nb::dlpack::dtype_code::UInt:
        return "uint";
      case nb::dlpack::dtype_code::Float:
        return "float";
      case nb::dlpack::dtype_code::Bfloat:
        return "bfloat";
      case nb::dlpack::dtype_code::Complex:
        return "complex";
      case nb::dlpack::dtype_code::Bool:
        return "bool";
      default:
        return absl::StrCat("DLPack type ", dtype.code, " of bits ");
    }
  };
  return absl::StrCat(kind(), dtype.bits);
}

// A torch parameter exports its memory only when detached, which copies nothing.
nb::object Detached(nb::handle array) {
  const bool has_gradient =
      nb::hasattr(array, "requires_grad") && nb::cast<bool>(nb::bool_(array.attr("requires_grad")));
  return has_gradient ? array.attr("detach")() : nb::borrow(array);
}

bool IsContiguous(const Array& array) {
  if (array.size() == 0) return true;
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

Array Import(nb::handle array,
             const std::string& what,
             Access access,
             const char* wanted = "an array") {
  const nb::object source = Detached(array);
  Array taken;
  if (!nb::try_cast(source, taken, false)) {
    throw nb::type_error(
        absl::StrCat(
            what, ": expected ", wanted, " (NumPy, torch or DLPack), got ", TypeName(array))
            .c_str());
  }
  if (access == Access::kRead) return taken;
  nb::ndarray<> writable;
  if (nb::try_cast(source, writable, false)) return Array(writable);
  throw nb::value_error(
      absl::StrCat(what, ": expected a writable array, got a read-only one").c_str());
}

// The shape of an array, which must be C-contiguous and in CPU memory.
std::vector<int64_t> CheckMemory(const Array& taken, const std::string& what) {
  if (std::ranges::find(kCpuDevices, taken.device_type()) == std::end(kCpuDevices)) {
    throw nb::value_error(absl::StrCat(what,
                                       ": expected memory of the CPU, got DLPack device ",
                                       taken.device_type(),
                                       "; copy it to the CPU")
                              .c_str());
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < taken.ndim(); ++i) dims.push_back(static_cast<int64_t>(taken.shape(i)));
  if (!IsContiguous(taken)) {
    throw nb::value_error(
        absl::StrCat(what,
                     ": expected a C-contiguous array, got strides of another order "
                     "with shape ",
                     ShapeText(dims),
                     "; pass numpy.ascontiguousarray of it")
            .c_str());
  }
  return dims;
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

nb::dlpack::dtype DLPackOf(DType dtype) {
  const auto code =
      dtype == DType::kBFloat16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  const uint8_t bits = dtype == DType::kFloat32 ? 32 : 16;
  return {static_cast<uint8_t>(code), bits, 1};
}

// The argument for an array of dtype `dtype`; checks its memory.
ArrayArgument Taken(Array taken, const std::string& what, DType dtype) {
  ArrayArgument argument{.owner = std::move(taken)};
  argument.dims = CheckMemory(argument.owner, what);
  // Whether the array is writable was checked before.
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(argument.owner.data()));
  argument.values = {dtype, {bytes, argument.owner.size() * argument.owner.itemsize()}};
  return argument;
}

nb::builtin_exception WrongDType(const std::string& what,
                                 const std::string& wanted,
                                 const Array& taken) {
  return nb::type_error(
      absl::StrCat(what, ": expected dtype ", wanted, ", got ", DTypeName(taken.dtype())).c_str());
}

// The element type of collectives; none if they have no such values.
std::optional<ElementType> ElementTypeOf(nb::dlpack::dtype dtype) {
  if (dtype == nb::dtype<float>()) return ElementType::kFloat32;
  if (dtype == nb::dtype<double>()) return ElementType::kFloat64;
  if (dtype == DLPackOf(DType::kFloat16)) return ElementType::kFloat16;
  if (dtype == DLPackOf(DType::kBFloat16)) return ElementType::kBFloat16;
  if (dtype == nb::dtype<int32_t>()) return ElementType::kInt32;
  if (dtype == nb::dtype<int64_t>()) return ElementType::kInt64;
  if (dtype == nb::dtype<uint8_t>() || dtype == nb::dtype<bool>()) return ElementType::kUint8;
  return std::nullopt;
}

}  // namespace

std::string ShapeText(std::span<const int64_t> dims) {
  return absl::StrCat("(", absl::StrJoin(dims, ", "), dims.size() == 1 ? ",)" : ")");
}

ArrayArgument TakeArray(nb::handle array, const std::string& what, Access access) {
  Array taken = Import(array, what, access);
  const auto* dtype = std::ranges::find(kDTypes, taken.dtype(), &DLPackOf);
  if (dtype == std::end(kDTypes)) throw WrongDType(what, "float32, float16 or bfloat16", taken);
  return Taken(std::move(taken), what, *dtype);
}

ArrayArgument TakeArray(nb::handle array,
                        const std::string& what,
                        Access access,
                        const std::vector<int64_t>& wanted,
                        DType dtype) {
  const std::string kind = absl::StrCat("a ", DTypeName(DLPackOf(dtype)), " array");
  Array taken = Import(array, what, access, kind.c_str());
  if (taken.dtype() != DLPackOf(dtype)) throw WrongDType(what, DTypeName(DLPackOf(dtype)), taken);
  ArrayArgument argument = Taken(std::move(taken), what, dtype);
  if (argument.dims != wanted) {
    throw nb::value_error(
        absl::StrCat(
            what, ": expected shape ", ShapeText(wanted), ", got ", ShapeText(argument.dims))
            .c_str());
  }
  return argument;
}

ValuesArgument TakeValues(nb::handle array, const std::string& what, Access access) {
  ValuesArgument argument{.owner = Import(array, what, access)};
  const Array& taken = argument.owner;
  const std::optional<ElementType> type = ElementTypeOf(taken.dtype());
  if (!type) {
    throw WrongDType(
        what, "float32, float64, float16, bfloat16, int32, int64, uint8 or bool", taken);
  }
  argument.dims = CheckMemory(taken, what);
  argument.is_bool = taken.dtype() == nb::dtype<bool>();
  // Whether the array is writable was checked above.
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(taken.data()));
  argument.values = {*type, {bytes, taken.size() * taken.itemsize()}};
  return argument;
}

KeysArgument TakeKeys(nb::handle array, const std::string& what) {
  KeysArgument argument{.owner = Import(array, what, Access::kRead, "an array of uint64 or int64")};
  const Array& taken = argument.owner;
  const bool is_signed = taken.dtype() == nb::dtype<int64_t>();
  if (!is_signed && taken.dtype() != nb::dtype<uint64_t>()) {
    throw nb::type_error(
        absl::StrCat(what, ": expected dtype uint64 or int64, got ", DTypeName(taken.dtype()))
            .c_str());
  }
  const std::vector<int64_t> dims = CheckMemory(taken, what);
  if (dims.size() != 1) {
    throw nb::value_error(
        absl::StrCat(what, ": expected one dimension, got shape ", ShapeText(dims)).c_str());
  }
  // The same bits: an int64 of at least 0 is the same number as a uint64.
  argument.keys = {static_cast<const uint64_t*>(taken.data()), taken.size()};
  const std::span<const int64_t> numbers(static_cast<const int64_t*>(taken.data()),
                                         is_signed ? taken.size() : 0);
  const auto below_0 = std::ranges::find_if(numbers, [](int64_t key) { return key < 0; });
  if (below_0 == numbers.end()) return argument;
  throw nb::value_error(absl::StrCat(what,
                                     ": expected keys of 0 or more, got ",
                                     *below_0,
                                     " at position ",
                                     below_0 - numbers.begin())
                            .c_str());
}

}  // namespace pushpull::python
