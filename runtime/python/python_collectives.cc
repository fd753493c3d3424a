// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_collectives.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/python/array_argument.h"
#include "runtime/python/blocking.h"

namespace pushpull::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

using Indices = std::vector<uint32_t>;
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

Indices IndicesOf(const std::vector<WorkerId>& workers) {
  Indices indices;
  for (const WorkerId worker : workers) indices.push_back(worker.value());
  return indices;
}

Reduction ReductionOf(const std::string& name, const ValuesArgument& array) {
  const bool is_order = name == "min" || name == "max";
  if (name != "sum" && name != "mean" && !is_order) {
    throw nb::value_error(
        absl::StrCat("all_reduce: op: expected one of sum, mean, min, max, got \"", name, "\"")
            .c_str());
  }
  if (array.is_bool && !is_order) {
    throw nb::type_error(absl::StrCat("all_reduce: bool values have \"max\" (any) and \"min\" "
                                      "(all), got \"",
                                      name,
                                      "\"")
                             .c_str());
  }
  if (is_order) return name == "min" ? Reduction::kMin : Reduction::kMax;
  return name == "sum" ? Reduction::kSum : Reduction::kMean;
}

// Calls again after each slice, which continues the call.
template <typename Call>
auto Wait(const PythonJob& job, double seconds, const Call& call) {
  const Deadline deadline = DeadlineAfter(seconds);
  Collectives& collectives = job.job().collectives();
  const std::shared_ptr<OpenJob> kept = job.open();
  decltype(call(collectives, deadline)) result = absl::UnknownError("not called");
  Check(WaitInSlices(deadline, [&](Deadline slice) {
    result = call(collectives, slice);
    return result.status();
  }));
  return *std::move(result);
}

Indices Barrier(const PythonJob& job, double seconds) {
  return IndicesOf(Wait(job, seconds, [](Collectives& collectives, Deadline deadline) {
    return collectives.Barrier(deadline);
  }));
}

Indices AllReduce(const PythonJob& job, nb::handle array, const std::string& op, double seconds) {
  const ValuesArgument values = TakeValues(array, "all_reduce: value", Access::kWrite);
  const Reduction reduction = ReductionOf(op, values);
  return IndicesOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.AllReduce(values.values, reduction, deadline);
  }));
}

std::pair<Indices, Bytes> AllGather(const PythonJob& job, nb::handle array, double seconds) {
  const ValuesArgument values = TakeValues(array, "all_gather: value", Access::kRead);
  auto all = std::make_unique<GatheredValues>(
      Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
        return collectives.AllGather({values.values.type, values.values.bytes}, deadline);
      }));
  Indices workers = IndicesOf(all->workers);
  GatheredValues& kept = *all;
  const nb::capsule owner(
      all.release(), [](void* memory) noexcept { delete static_cast<GatheredValues*>(memory); });
  return {std::move(workers),
          Bytes(reinterpret_cast<uint8_t*>(kept.bytes.data()), {kept.bytes.size()}, owner)};
}

Indices Broadcast(const PythonJob& job,
                  nb::handle array,
                  std::optional<uint32_t> root,
                  double seconds) {
  const ValuesArgument values = TakeValues(array, "broadcast: value", Access::kWrite);
  const std::optional<WorkerId> from = root ? std::optional(WorkerId{*root}) : std::nullopt;
  return IndicesOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.Broadcast(values.values, from, deadline);
  }));
}

}  // namespace

void DefineCollectives(nb::class_<PythonJob>& job) {
  job.def(
         "use_step",
         [](const PythonJob& job_of, std::optional<uint64_t> step) {
           // A loop over steps may end after the job.
           if (job_of.open() == nullptr || job_of.open()->job == nullptr) return;
           job_of.job().collectives().UseStep(step ? std::optional(Step{*step}) : std::nullopt);
         },
         "step"_a.none())
      .def("barrier", &Barrier, "timeout"_a)
      .def("all_reduce", &AllReduce, "value"_a, "op"_a, "timeout"_a)
      .def("all_gather",
           &AllGather,
           "value"_a,
           "timeout"_a,
           nb::sig("def all_gather(self, value: object, timeout: float) -> "
                   "tuple[list[int], object]"))
      .def("broadcast", &Broadcast, "value"_a, "root"_a.none(), "timeout"_a);
}

}  // namespace pushpull::python
