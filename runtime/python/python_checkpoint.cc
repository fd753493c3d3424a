// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_checkpoint.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/python/array_argument.h"
#include "runtime/python/blocking.h"

namespace pushpull::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): the literal _a

// Read at a time: so long Ctrl-C waits.
constexpr size_t kPieceBytes = size_t{16} << 20;

using Numbers = nb::ndarray<nb::numpy, const uint64_t, nb::ndim<1>>;
using Floats = nb::ndarray<nb::numpy, const float, nb::ndim<1>>;

template <typename NbArray, typename Number>
NbArray Lent(const std::vector<Number>& numbers, const nb::capsule& owner) {
  return NbArray(numbers.data(), {numbers.size()}, owner);
}

const char* NameOf(DType dtype) {
  if (dtype == DType::kFloat32) return "float32";
  return dtype == DType::kFloat16 ? "float16" : "bfloat16";
}

const char* NameOf(TensorRole role) {
  if (role == TensorRole::kOptimizerState) return "optimizer state";
  return role == TensorRole::kInternal ? "internal" : "value";
}

class PythonCheckpoint {
 public:
  explicit PythonCheckpoint(const std::string& path) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> opened = [&path] {
      const nb::gil_scoped_release released;
      return Checkpoint::Open(path);
    }();
    Check(opened.status());
    checkpoint_ = *std::move(opened);
  }

  const CheckpointInfo& info() const { return checkpoint_->info(); }
  const std::vector<CheckpointTensor>& tensors() const { return checkpoint_->tensors(); }

  // (epoch, position, samples, batch, whether that is of all workers), or None.
  nb::object Position() const {
    const auto& position = checkpoint_->position();
    if (!position) return nb::none();
    const SampleSource& source = position->source;
    return nb::make_tuple(position->epoch,
                          position->position,
                          source.num_samples,
                          source.batch,
                          source.is_global_batch);
  }

  void Read(const std::string& tensor, const nb::object& out) const {
    const ArrayArgument array =
        TakeArray(out, absl::StrCat("tensor \"", tensor, "\": out"), Access::kWrite);
    const DType dtype = array.values.dtype();
    const size_t element = dtype == DType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
    InPieces(array.values.bytes(), [&](size_t at, std::span<std::byte> piece) {
      return checkpoint_->Read(tensor, at / element, TensorValues(dtype, piece));
    });
  }

  void ReadOptimizerState(const std::string& tensor, size_t row, const nb::object& out) const {
    const ArrayArgument array =
        TakeArray(out, absl::StrCat("tensor \"", tensor, "\": out"), Access::kWrite);
    if (array.values.dtype() != DType::kFloat32)
      throw nb::type_error("optimizer state: expected an array of float32");
    InPieces(array.values.bytes(), [&](size_t at, std::span<std::byte> piece) {
      return checkpoint_->ReadOptimizerState(
          tensor, row, at / sizeof(float), TensorValues(DType::kFloat32, piece).floats());
    });
  }

  uint64_t Updates(const std::string& tensor) const {
    const absl::StatusOr<uint64_t> updates = checkpoint_->Updates(tensor);
    Check(updates.status());
    return *updates;
  }

  // Keys, values, states and the number of updates.
  std::tuple<Numbers, Floats, Floats, uint64_t> ReadRows(const std::string& tensor) const {
    absl::StatusOr<CheckpointRows> read = [&] {
      const nb::gil_scoped_release released;
      return checkpoint_->ReadRows(tensor);
    }();
    Check(read.status());
    auto kept = std::make_unique<CheckpointRows>(*std::move(read));
    const CheckpointRows& rows = *kept;
    const nb::capsule owner(kept.release(), [](void* memory) noexcept {
      // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the capsule owns it
      delete static_cast<CheckpointRows*>(memory);
    });
    return {Lent<Numbers>(rows.keys, owner),
            Lent<Floats>(rows.values, owner),
            Lent<Floats>(rows.states, owner),
            rows.updates};
  }

 private:
  template <typename Reader>
  static void InPieces(std::span<std::byte> bytes, const Reader& read) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const std::span<std::byte> piece =
          bytes.subspan(at).first(std::min(kPieceBytes, bytes.size() - at));
      absl::Status status;
      {
        const nb::gil_scoped_release released;
        status = read(at, piece);
      }
      Check(status);
      RunSignalHandlers();
    }
  }

  std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace

void DefineCheckpoint(nb::module_& module) {
  nb::class_<CheckpointTensor>(module, "CheckpointTensor", "What a checkpoint has of a tensor.")
      .def_prop_ro("name", [](const CheckpointTensor& tensor) { return tensor.spec.name; })
      .def_prop_ro("shape", [](const CheckpointTensor& tensor) { return tensor.spec.dims; })
      .def_prop_ro("dtype",
                   [](const CheckpointTensor& tensor) { return NameOf(tensor.spec.dtype); })
      .def_prop_ro("optimizer",
                   [](const CheckpointTensor& tensor) { return tensor.spec.optimizer; })
      .def_prop_ro(
          "state_rows",
          [](const CheckpointTensor& tensor) { return StateFloatsPerValue(tensor.spec.optimizer); })
      .def_prop_ro("has_rows",
                   [](const CheckpointTensor& tensor) { return tensor.spec.rows.has_value(); })
      .def_prop_ro("role", [](const CheckpointTensor& tensor) { return NameOf(tensor.role); })
      .def_ro("owner", &CheckpointTensor::owner)
      .def_ro("key", &CheckpointTensor::key);
  nb::class_<PythonCheckpoint>(
      module, "EngineCheckpoint", "A checkpoint's files; see pushpull.Checkpoint.")
      .def(nb::init<const std::string&>(), "path"_a)
      .def_prop_ro("folder", [](const PythonCheckpoint& self) { return self.info().folder; })
      .def_prop_ro("job", [](const PythonCheckpoint& self) { return self.info().job; })
      .def_prop_ro("job_namespace",
                   [](const PythonCheckpoint& self) { return self.info().job_namespace; })
      .def_prop_ro("mode", [](const PythonCheckpoint& self) { return self.info().mode; })
      .def_prop_ro("step", [](const PythonCheckpoint& self) { return self.info().step.value(); })
      .def_prop_ro("written_at",
                   [](const PythonCheckpoint& self) { return self.info().written_at; })
      .def_prop_ro("position",
                   &PythonCheckpoint::Position,
                   nb::sig("def position(self) -> tuple[int, int, int, int, bool] | None"))
      .def("tensors", &PythonCheckpoint::tensors, "Copies.")
      .def("read", &PythonCheckpoint::Read, "tensor"_a, "out"_a)
      .def("read_optimizer_state",
           &PythonCheckpoint::ReadOptimizerState,
           "tensor"_a,
           "row"_a,
           "out"_a)
      .def("updates", &PythonCheckpoint::Updates, "tensor"_a)
      .def("read_rows",
           &PythonCheckpoint::ReadRows,
           "tensor"_a,
           nb::sig("def read_rows(self, tensor: str) -> "
                   "tuple[typing.Any, typing.Any, typing.Any, int]"));
}

}  // namespace pushpull::python
