// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_collectives.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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

// An array of these bytes, without a copy.
Bytes BytesOf(std::vector<std::byte> bytes) {
  auto kept = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  const std::vector<std::byte>& memory = *kept;
  auto* data = reinterpret_cast<uint8_t*>(kept->data());
  const nb::capsule owner(kept.release(), [](void* vector) noexcept {
    delete static_cast<std::vector<std::byte>*>(vector);
  });
  return {data, {memory.size()}, owner};
}

const char* DTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      break;
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
  }
  return "uint8";
}

// A timeout; none: no limit.
using Seconds = std::optional<double>;

// Repeats `call` after each slice, which continues the same collective.
template <typename Call>
auto Wait(const PythonJob& job, Seconds seconds, const Call& call) {
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

Indices Barrier(const PythonJob& job, Seconds seconds) {
  return IndicesOf(Wait(job, seconds, [](Collectives& collectives, Deadline deadline) {
    return collectives.Barrier(deadline);
  }));
}

Indices AllReduce(const PythonJob& job, nb::handle array, const std::string& op, Seconds seconds) {
  const ValuesArgument values = TakeValues(array, "all_reduce: value", Access::kWrite);
  const Reduction reduction = ReductionOf(op, values);
  return IndicesOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.AllReduce(values.values, reduction, deadline);
  }));
}

// Workers, data type and shape of each one's array, bytes of all.
using Gathered = std::tuple<Indices, const char*, std::vector<int64_t>, Bytes>;

Gathered AllGather(const PythonJob& job, nb::handle array, Seconds seconds) {
  const ValuesArgument values = TakeValues(array, "all_gather: value", Access::kRead);
  GatheredValues all = Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.AllGather({values.values.type, values.values.bytes}, deadline);
  });
  return {IndicesOf(all.workers),
          values.is_bool ? "bool" : DTypeOf(values.values.type),
          values.dims,
          BytesOf(std::move(all.bytes))};
}

Indices Broadcast(const PythonJob& job,
                  nb::handle array,
                  std::optional<uint32_t> root,
                  Seconds seconds) {
  const ValuesArgument values = TakeValues(array, "broadcast: value", Access::kWrite);
  const std::optional<WorkerId> from = root ? std::optional(WorkerId{*root}) : std::nullopt;
  return IndicesOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.Broadcast(values.values, from, deadline);
  }));
}

// A message to another worker. It stays valid while `array` does.
OutgoingMessage MessageTo(uint32_t to, const ValuesArgument& array, const std::string& label) {
  return {.values = {array.values.type, array.values.bytes}, .to = WorkerId{to}, .label = label};
}

// Where a received message goes: an array of the program, or none.
class Destination {
 public:
  Destination(nb::handle out, const std::string& what) {
    if (!out.is_none()) array_ = TakeValues(out, what, Access::kWrite);
  }
  ExpectedMessage MessageFrom(uint32_t from) const {
    return {.from = WorkerId{from}, .into = array_ ? std::optional(array_->values) : std::nullopt};
  }

 private:
  std::optional<ValuesArgument> array_;
};

// Data type, bytes and label.
using Received = std::tuple<const char*, Bytes, std::string>;

Received ReceivedOf(ReceivedMessage message) {
  return {DTypeOf(message.type), BytesOf(std::move(message.bytes)), std::move(message.label)};
}

void Send(const PythonJob& job,
          nb::handle array,
          uint32_t to,
          const std::string& label,
          Seconds seconds) {
  const ValuesArgument values = TakeValues(array, "send: value", Access::kRead);
  Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) -> absl::StatusOr<bool> {
    const absl::Status sent = collectives.Send(MessageTo(to, values, label), deadline);
    if (!sent.ok()) return sent;
    return true;
  });
}

Received Recv(const PythonJob& job, uint32_t from, nb::handle out, Seconds seconds) {
  const Destination destination(out, "recv: out");
  return ReceivedOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.Recv(destination.MessageFrom(from), deadline);
  }));
}

// Value, receiver and label.
using Outgoing = std::tuple<nb::object, uint32_t, std::string>;

Received SendRecv(const PythonJob& job,
                  const Outgoing& outgoing,
                  uint32_t from,
                  nb::handle out,
                  Seconds seconds) {
  const auto& [array, to, label] = outgoing;
  const ValuesArgument values = TakeValues(array, "send_recv: value", Access::kRead);
  const OutgoingMessage message = MessageTo(to, values, label);
  const Destination destination(out, "send_recv: out");
  return ReceivedOf(Wait(job, seconds, [&](Collectives& collectives, Deadline deadline) {
    return collectives.SendRecv(message, destination.MessageFrom(from), deadline);
  }));
}

}  // namespace

void DefineCollectives(nb::class_<PythonJob>& job) {
  job.def(
         "use_step",
         [](const PythonJob& job_of, std::optional<uint64_t> step) {
           // A loop over steps may end after the job is closed.
           if (job_of.open() == nullptr || job_of.open()->job == nullptr) return;
           job_of.job().collectives().UseStep(step ? std::optional(Step{*step}) : std::nullopt);
         },
         "step"_a.none())
      .def("end_step", &PythonJob::EndStep)
      .def("barrier", &Barrier, "timeout"_a.none())
      .def("all_reduce", &AllReduce, "value"_a, "op"_a, "timeout"_a.none())
      .def("all_gather",
           &AllGather,
           "value"_a,
           "timeout"_a.none(),
           nb::sig("def all_gather(self, value: object, timeout: float | None) -> "
                   "tuple[list[int], str, list[int], object]"))
      .def("broadcast", &Broadcast, "value"_a, "root"_a.none(), "timeout"_a.none())
      .def("send", &Send, "value"_a, "to"_a, "label"_a, "timeout"_a.none())
      .def("recv",
           &Recv,
           "from_"_a,
           "out"_a.none(),
           "timeout"_a.none(),
           nb::sig("def recv(self, from_: int, out: object, timeout: float | None) -> "
                   "tuple[str, object, str]"))
      .def("send_recv",
           &SendRecv,
           "outgoing"_a,
           "from_"_a,
           "out"_a.none(),
           "timeout"_a.none(),
           nb::sig("def send_recv(self, outgoing: tuple[object, int, str], from_: int, "
                   "out: object, timeout: float | None) -> tuple[str, object, str]"));
}

}  // namespace pushpull::python
