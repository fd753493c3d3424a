// SPDX-License-Identifier: Apache-2.0
//
// The extension module pushpull._engine. Users see only the Python package around it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/python/blocking.h"
#include "runtime/python/python_checkpoint.h"
#include "runtime/python/python_collectives.h"
#include "runtime/python/python_job.h"

namespace pushpull::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): the literal _a

void RaiseStatusError(const std::exception_ptr& error, void* /*unused*/) {
  try {
    std::rethrow_exception(error);
  } catch (const StatusError& failed) {
    const nb::object type = nb::module_::import_("pushpull._errors").attr("PushPullError");
    const nb::str code(absl::StatusCodeToString(failed.status().code()).c_str());
    PyErr_SetObject(type.ptr(), type(nb::str(failed.what()), code).ptr());
  }
}

void DefineOptions(nb::module_& module) {
  nb::enum_<OptimizerKind>(
      module, "OptimizerKind", "What the servers do with the reduced gradient.")
      .value("SUM", OptimizerKind::kSum)
      .value("SGD", OptimizerKind::kSgd)
      .value("ADAGRAD", OptimizerKind::kAdagrad)
      .value("ADAM", OptimizerKind::kAdam)
      .value("ADAMW", OptimizerKind::kAdamW);
  nb::class_<OptimizerSpec>(module, "OptimizerSpec", "A kind of optimizer and its settings.")
      .def(nb::init<>())
      .def_rw("kind", &OptimizerSpec::kind)
      .def_rw("learning_rate", &OptimizerSpec::learning_rate)
      .def_rw("momentum", &OptimizerSpec::momentum)
      .def_rw("nesterov", &OptimizerSpec::nesterov)
      .def_rw("weight_decay", &OptimizerSpec::weight_decay)
      .def_rw("beta1", &OptimizerSpec::beta1)
      .def_rw("beta2", &OptimizerSpec::beta2)
      .def_rw("epsilon", &OptimizerSpec::epsilon);
  nb::class_<RowSpec>(module, "RowSpec", "What rows begin with, and when they are evicted.")
      .def(nb::init<>())
      .def_rw("scale", &RowSpec::scale)
      .def_rw("seed", &RowSpec::seed)
      .def_rw("evict_after", &RowSpec::evict_after);
  nb::class_<TensorOptions>(module, "TensorOptions", "How a tensor is registered.")
      .def(nb::init<>())
      .def_rw("optimizer", &TensorOptions::optimizer)
      .def_rw("reduce", &TensorOptions::reduce)
      .def_rw("codec", &TensorOptions::codec)
      .def_rw("keeps_value", &TensorOptions::keeps_value)
      .def_rw("clip_norm", &TensorOptions::clip_norm)
      .def_rw("init", &TensorOptions::init)
      .def_rw("rows", &TensorOptions::rows);
  nb::class_<PushOptions>(module, "PushOptions", "How a gradient is pushed.")
      .def(nb::init<>())
      .def_rw("samples", &PushOptions::samples)
      .def_rw("learning_rate", &PushOptions::learning_rate)
      .def_rw("in_place", &PushOptions::in_place)
      .def_rw("has_gradient", &PushOptions::has_gradient);
}

std::vector<std::pair<uint64_t, uint64_t>> RangesOf(const StepSamples& samples) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const SampleRange& range : samples.ranges) ranges.emplace_back(range.first, range.count);
  return ranges;
}

std::vector<uint32_t> MembersOf(const StepSamples& samples) {
  std::vector<uint32_t> members;
  for (const WorkerId worker : samples.members) members.push_back(worker.value());
  return members;
}

void DefineSamples(nb::module_& module) {
  nb::class_<StepSamples>(module, "StepSamples", "One worker's part of a step.")
      .def_prop_ro("step", [](const StepSamples& samples) { return samples.step.value(); })
      .def_ro("epoch", &StepSamples::epoch)
      .def_ro("position", &StepSamples::position)
      .def_ro("batch", &StepSamples::batch)
      .def_ro("total", &StepSamples::total)
      .def_ro("count", &StepSamples::count)
      .def_ro("has_step", &StepSamples::has_step)
      .def_ro("is_over", &StepSamples::is_over)
      .def_prop_ro("ranges", &RangesOf, "Pairs of first position and count.")
      .def_prop_ro("members", &MembersOf, "Indices of workers.");
}

void DefineHandle(nb::module_& module) {
  nb::class_<PythonHandle>(module,
                           "Handle",
                           "A push or pull under way. Dropping it cancels nothing: the library "
                           "keeps the arrays allocated.")
      .def(
          "wait",
          &PythonHandle::Wait,
          "timeout"_a = nb::none(),
          "Blocks until the new value is in `out` (without `out`: until the push counts), or for\n"
          "`timeout` seconds, without the interpreter lock; Ctrl-C ends it within 0.1 s. None: as\n"
          "long as the other workers live; spec.sync.stallSeconds reports who is late, and the "
          "end\n"
          "of the job ends the wait. May be called again.\n\n"
          "Raises PushPullError with the code\n"
          "  DEADLINE_EXCEEDED    still under way; names the workers that it waits for, or the\n"
          "                       servers without an answer. Wait again.\n"
          "  UNAVAILABLE          the job has failed, e.g. a server was lost. End the process.\n"
          "  INVALID_ARGUMENT     a server rejected the gradient (NaN). Correct the program.\n"
          "  ABORTED              this worker was replaced. End the process.\n"
          "  CANCELLED            the job has ended. End the process with Job.exit_code.\n"
          "  FAILED_PRECONDITION  the job was closed first, or this program does not push the "
          "other\n"
          "                       tensors that the step needs.")
      .def("done",
           &PythonHandle::IsDone,
           "Whether wait() would return or raise at once. Never blocks.")
      .def("pieces",
           &PythonHandle::Pieces,
           "Of a push with `in_place`, after wait(): the new value as one-dimensional read-only "
           "float32\n"
           "arrays in the tensor's order, some of them in the server's memory. Valid until the "
           "next push\n"
           "of the tensor or leave().")
      .def_prop_ro("updates",
                   &PythonHandle::Updates,
                   "Of Store.pull_optimizer_state, after wait(): the steps that the optimizer has "
                   "made.")
      .def_prop_ro("has_gradient",
                   &PythonHandle::HasGradient,
                   "Of a push, after wait(): whether any worker's gradient counted in its step. "
                   "True for other\noperations.")
      .def_prop_ro("rows",
                   &PythonHandle::Rows,
                   nb::sig("def rows(self) -> typing.Any"),
                   "Of Store.pull_rows: the array that has the rows after wait(), float32 of shape "
                   "(keys, dim).\n"
                   "None for other operations.");
}

void DefineBoundPush(nb::module_& module) {
  nb::class_<PythonJob::BoundPush>(module, "BoundPush", "A tensor with the arrays of its pushes.")
      .def(
          "push",
          [](PythonJob::BoundPush& bound, const PushOptions& options) {
            return bound.Push(options);
          },
          "options"_a)
      .def(
          "push",
          [](PythonJob::BoundPush& bound, double samples, double learning_rate, bool has_gradient) {
            return bound.Push(
                {.samples = samples, .learning_rate = learning_rate, .has_gradient = has_gradient});
          },
          "samples"_a,
          "learning_rate"_a,
          "has_gradient"_a = true);
}

void DefineState(nb::class_<PythonJob>& type) {
  type.def("use_state", [](const PythonJob& job) { job.job().state().Use(); })
      .def(
          "take_save",
          [](const PythonJob& job, bool is_last) { return job.job().state().TakeSave(is_last); },
          "is_last"_a)
      .def("check_state", [](const PythonJob& job) { python::Check(job.job().state().Check()); })
      .def("has_whole_steps",
           [](const PythonJob& job) { return job.job().state().has_whole_steps(); })
      .def("has_joined_others",
           [](const PythonJob& job) { return job.job().state().has_joined_others(); });
}

void DefineJob(nb::module_& module) {
  nb::class_<PythonJob> type(
      module, "EngineJob", "One worker's membership in a job; see pushpull.Job.");
  type.def(nb::init<const std::map<std::string, std::string>&, double>(),
           "environment"_a,
           "timeout"_a)
      .def("use_samples",
           &PythonJob::UseSamples,
           "num_samples"_a,
           "epochs"_a,
           "batch"_a,
           "is_global_batch"_a,
           "drops_last"_a)
      .def("add", &PythonJob::Add, "name"_a, "value"_a, "options"_a)
      .def("add_rows", &PythonJob::AddRows, "name"_a, "dims"_a, "value"_a.none(), "options"_a)
      .def("set_optimizer_state", &PythonJob::SetOptimizerState, "name"_a, "state"_a, "updates"_a)
      .def("start", &PythonJob::Start, "timeout"_a)
      .def("bind", &PythonJob::Bind, "name"_a, "gradient"_a, "out"_a.none(), nb::keep_alive<0, 1>())
      .def("pull", &PythonJob::Pull, "name"_a, "out"_a, "min_step"_a)
      .def("push_rows", &PythonJob::PushRows, "name"_a, "keys"_a, "gradient"_a, "options"_a)
      .def("pull_rows", &PythonJob::PullRows, "name"_a, "keys"_a, "out"_a.none(), "min_step"_a)
      .def("pull_optimizer_state", &PythonJob::PullOptimizerState, "name"_a, "out"_a, "min_step"_a)
      .def("commit_samples", &PythonJob::CommitSamples, "are_done"_a = true)
      .def("samples", &PythonJob::Samples, "steps_ahead"_a = 0)
      .def("buffer",
           &PythonJob::Buffer,
           "num_values"_a,
           nb::sig("def buffer(self, num_values: int) -> object"))
      .def("leave", &PythonJob::Leave, "timeout"_a)
      .def("close", &PythonJob::Close)
      .def("close_at_exit", &PythonJob::CloseAtExit, "leaves"_a)
      .def("tell_to_end", [](const PythonJob& job) { job.job().TellToEnd(); })
      .def(
          "report_loss",
          [](const PythonJob& job, uint64_t step, double loss, uint64_t samples) {
            job.job().ReportLoss(Step{step}, loss, samples);
          },
          "step"_a,
          "loss"_a,
          "samples"_a)
      .def(
          "report_result",
          [](const PythonJob& job, const std::string& name, double value) {
            python::Check(job.job().ReportResult(name, value));
          },
          "name"_a,
          "value"_a)
      .def_prop_ro("is_traced", [](const PythonJob& job) { return job.job().tracing().is_on(); })
      .def(
          "trace_span",
          [](const PythonJob& job, const std::string& name, int64_t begin_ns, int64_t end_ns) {
            const auto at = [](int64_t ns) { return SteadyTime(std::chrono::nanoseconds(ns)); };
            job.job().tracing().Span(name, at(begin_ns), at(end_ns));
          },
          "name"_a,
          "begin_ns"_a,
          "end_ns"_a)
      .def_prop_ro("is_released", [](const PythonJob& job) { return job.job().is_released(); })
      .def_prop_ro("exit_code", [](const PythonJob& job) { return job.job().exit_code(); })
      .def_prop_ro("start_step",
                   [](const PythonJob& job) { return job.job().start_step().value(); })
      .def_prop_ro("next_step", [](const PythonJob& job) { return job.job().next_step().value(); })
      .def_prop_ro("worker", [](const PythonJob& job) { return job.job().worker().value(); })
      .def_prop_ro("workers", [](const PythonJob& job) { return job.job().workers(); });
  DefineState(type);
  DefineCollectives(type);
}

}  // namespace

NB_MODULE(_engine, module) {
  if (Py_AtExit(&EndAttempts) != 0)
    throw std::runtime_error("pushpull: the interpreter takes no more exit functions");
  nb::register_exception_translator(&RaiseStatusError);
  // A job that the program does not close lives until the process ends: see CloseAtExit.
  nb::set_leak_warnings(false);
  DefineOptions(module);
  DefineSamples(module);
  DefineHandle(module);
  DefineBoundPush(module);
  DefineJob(module);
  DefineCheckpoint(module);
}

}  // namespace pushpull::python
