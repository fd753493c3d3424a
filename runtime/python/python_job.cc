// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <span>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/python/blocking.h"

namespace pushpull::python {
namespace {

namespace nb = nanobind;

using JoinResult = absl::StatusOr<std::unique_ptr<Job>>;

// Joining cannot be interrupted, so it is attempted again and again for as long as the program
// wants; after Ctrl-C the last attempt ends by itself.
constexpr Duration kJoinAttempt = std::chrono::seconds(3);

struct AbandonedAttempt {
  std::future<JoinResult> joined;
  pid_t owner = getpid();  // a forked process does not have its thread
};

// One list per process; used with the interpreter lock held.
std::vector<AbandonedAttempt>& AbandonedAttempts() {
  static auto* attempts = new std::vector<AbandonedAttempt>;
  return *attempts;
}

constexpr std::chrono::seconds kLeaveAtExit{60};

struct JobAtExit {
  std::shared_ptr<OpenJob> open;
  const void* arrays;
  bool leaves;
};

std::vector<JobAtExit>& JobsAtExit() {
  static auto* jobs = new std::vector<JobAtExit>;
  return *jobs;
}

JoinResult JoinOnce(const JobOptions& options, Deadline deadline) {
  std::future<JoinResult> joined =
      std::async(std::launch::async, [options, deadline] { return Job::Join(options, deadline); });
  WaitInSlices(joined, [&] { AbandonedAttempts().push_back({std::move(joined)}); });
  return joined.get();
}

std::unique_ptr<Job> Join(const JobOptions& options, Deadline deadline) {
  while (true) {
    const Deadline attempt(std::min(deadline.when(), Deadline::After(kJoinAttempt).when()));
    JoinResult joined = JoinOnce(options, attempt);
    if (joined.ok()) return *std::move(joined);
    const bool may_retry =
        absl::IsDeadlineExceeded(joined.status()) || absl::IsUnavailable(joined.status());
    if (!may_retry || deadline.remaining() < kJoinAttempt / 10) throw StatusError(joined.status());
  }
}

// The value named `name`; `names` are numbered from `first`.
template <typename Enum>
Enum ByName(const std::string& what,
            const std::string& name,
            std::span<const char* const> names,
            Enum first) {
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Enum>(static_cast<size_t>(first) + i);
  throw nb::value_error(
      absl::StrCat(what, ": expected one of ", absl::StrJoin(names, ", "), ", got \"", name, "\"")
          .c_str());
}

constexpr const char* kReductions[] = {"mean", "sum", "min", "max", "prod", "and", "or"};

std::string Quoted(const std::string& name) {
  return absl::StrCat("tensor \"", name, "\"");
}

// The shape of the state that a tensor's optimizer keeps.
std::vector<int64_t> StateDims(const TensorSpec& spec) {
  std::vector<int64_t> dims = {static_cast<int64_t>(StateFloatsPerValue(spec.optimizer))};
  dims.insert(dims.end(), spec.dims.begin(), spec.dims.end());
  return dims;
}

// The shape of the rows of `keys`.
std::vector<int64_t> RowDims(const TensorSpec& spec, const KeysArgument& keys) {
  return {static_cast<int64_t>(keys.keys.size()), spec.dims[1]};
}

nb::object EmptyRows(const std::vector<int64_t>& dims) {
  return nb::module_::import_("numpy").attr("empty")(nb::make_tuple(dims[0], dims[1]), "float32");
}

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

}  // namespace

void OpenJob::End() {
  owner == getpid() ? job.reset() : static_cast<void>(job.release());
}

// ---- a handle ----

void PythonHandle::Wait(std::optional<double> seconds) {
  const Deadline deadline = DeadlineAfter(seconds);
  Check(WaitInSlices(deadline, [&](Deadline slice) -> absl::Status {
    if (job_.expired() && !IsDone())
      return absl::FailedPreconditionError("the job was closed before the operation was done");
    return handle_.Wait(slice);
  }));
}

bool PythonHandle::IsDone() {
  return !absl::IsDeadlineExceeded(handle_.Wait(Deadline::After(Duration::zero())));
}

std::vector<Piece> PythonHandle::Pieces() const {
  std::vector<Piece> pieces;
  const nb::object self = nb::find(*this);
  for (const std::span<const float> piece : handle_.Pieces())
    pieces.push_back(Piece(piece.data(), {piece.size()}, self));
  return pieces;
}

// ---- the job ----

PythonJob::PythonJob(const std::map<std::string, std::string>& environment, double seconds) {
  const absl::StatusOr<JobOptions> options = JobOptions::FromEnvironment(environment);
  Check(options.status());
  open_ = std::make_shared<OpenJob>(Join(*options, DeadlineAfter(seconds)));
}

PythonJob::~PythonJob() {
  Close();
}

void PythonJob::Check(const absl::Status& status) {
  python::Check(status);
}

Job& PythonJob::job() const {
  if (open_ == nullptr || open_->job == nullptr)
    throw StatusError(absl::FailedPreconditionError("the job is closed"));
  return *open_->job;
}

void PythonJob::CheckMayAdd(const std::string& name) const {
  job();
  if (has_started_) {
    throw StatusError(absl::FailedPreconditionError(
        absl::StrCat(Quoted(name), ": tensors are registered before start()")));
  }
  if (tensors_.contains(name))
    throw nb::value_error(absl::StrCat(Quoted(name), ": registered already").c_str());
}

void PythonJob::Remember(TensorRegistration registration, Array value) {
  const std::string name = registration.spec.name;
  TensorMemory tensor;
  tensor.registration = std::move(registration);
  tensor.value = std::move(value);
  tensors_.emplace(name, std::move(tensor));
  order_.push_back(name);
}

void PythonJob::Add(const std::string& name, nb::handle value, const TensorOptions& options) {
  static constexpr const char* kCodecs[] = {"none", "fp16", "bf16", "int8", "topk", "onebit"};
  CheckMayAdd(name);
  ArrayArgument array = TakeArray(value, absl::StrCat(Quoted(name), ": value"), Access::kWrite);
  Remember(
      {.spec = {.name = name,
                .dims = std::move(array.dims),
                .dtype = array.values.dtype(),
                .reduction = ByName(
                    Quoted(name) + ": reduce", options.reduce, kReductions, Reduction::kMean),
                .optimizer = options.optimizer,
                .codec = ByName(Quoted(name) + ": codec", options.codec, kCodecs, Codec::kNone),
                .clip_norm = options.clip_norm},
       .value = array.values,
       .keeps_value = options.keeps_value},
      std::move(array.owner));
}

void PythonJob::AddRows(const std::string& name,
                        std::pair<int64_t, int64_t> dims,
                        nb::handle value,
                        const TensorOptions& options) {
  static constexpr const char* kInits[] = {"zeros", "uniform", "normal"};
  CheckMayAdd(name);
  RowSpec rows = options.rows;
  rows.init = ByName(Quoted(name) + ": init", options.init, kInits, RowInit::kZeros);
  const std::vector<int64_t> shape = {dims.first, dims.second};
  ArrayArgument array;
  if (!value.is_none())
    array = TakeArray(value, absl::StrCat(Quoted(name), ": value"), Access::kRead, shape);
  Remember({.spec = {.name = name,
                     .dims = shape,
                     .reduction = ByName(
                         Quoted(name) + ": reduce", options.reduce, kReductions, Reduction::kMean),
                     .optimizer = options.optimizer,
                     .rows = rows},
            .value = array.values},
           std::move(array.owner));
}

void PythonJob::SetOptimizerState(const std::string& name, nb::handle state, uint64_t updates) {
  job();
  TensorMemory& tensor = FindRegistered(name);
  if (has_started_) {
    throw StatusError(absl::FailedPreconditionError(
        absl::StrCat(Quoted(name), ": the optimizer's state is set before start()")));
  }
  ArrayArgument array = TakeArray(state,
                                  absl::StrCat(Quoted(name), ": optimizer state"),
                                  Access::kRead,
                                  StateDims(tensor.registration.spec));
  tensor.registration.optimizer_state = array.values.floats();
  tensor.registration.updates = updates;
  tensor.optimizer_state = std::move(array.owner);
}

void PythonJob::Start(double seconds) {
  const Deadline deadline = DeadlineAfter(seconds);
  Job& job = this->job();
  const std::shared_ptr<OpenJob> kept = open_;
  has_started_ = true;
  std::vector<TensorRegistration> tensors;
  for (const std::string& name : order_) tensors.push_back(tensors_.at(name).registration);
  std::future<absl::Status> done = std::async(
      std::launch::async, [&job, &tensors, deadline] { return job.Register(tensors, deadline); });
  WaitInSlices(done, [&] {
    job.TellToEnd();  // interrupts the registration at once
    const nb::gil_scoped_release release;
    done.wait();
  });
  Check(done.get());
  for (auto& [name, tensor] : tensors_) {
    tensor.optimizer_state = {};
    if (!tensor.registration.spec.rows) continue;
    tensor.registration.value = {};  // the servers have the first rows now
    tensor.value = {};
  }
}

PythonJob::TensorMemory& PythonJob::Find(const std::string& name) {
  job();
  if (!has_started_)
    throw StatusError(absl::FailedPreconditionError("call start() before the first push or pull"));
  return FindRegistered(name);
}

PythonJob::TensorMemory& PythonJob::FindRegistered(const std::string& name) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw StatusError(absl::NotFoundError(absl::StrCat(
        Quoted(name), ": no such tensor; registered are ", absl::StrJoin(order_, ", "))));
  }
  return it->second;
}

PythonJob::TensorMemory& PythonJob::FindRows(const std::string& name) {
  TensorMemory& tensor = Find(name);
  if (tensor.registration.spec.rows) return tensor;
  throw StatusError(absl::InvalidArgumentError(
      absl::StrCat(Quoted(name), " is dense: use push_pull, push and pull")));
}

PythonJob::TensorMemory& PythonJob::FindDense(const std::string& name) {
  TensorMemory& tensor = Find(name);
  if (!tensor.registration.spec.rows) return tensor;
  throw StatusError(absl::InvalidArgumentError(
      absl::StrCat(Quoted(name), " is row-sparse: use push_rows and pull_rows")));
}

PythonHandle PythonJob::Track(TensorMemory& tensor,
                              absl::StatusOr<PushHandle> handle,
                              Array read,
                              Array written,
                              nb::object rows) {
  Check(handle.status());
  std::erase_if(tensor.operations, [](Operation& operation) {
    return operation.handle.Wait(Deadline::After(Duration::zero())).ok();
  });
  const bool is_copy = read.is_valid() && written.is_valid() && tensor.registration.keeps_value;
  Array replaced = is_copy ? std::exchange(tensor.newest, written) : Array();
  tensor.operations.push_back({*handle, std::move(read), std::move(written), std::move(replaced)});
  return PythonHandle(*std::move(handle), open_, std::move(rows));
}

PythonJob::BoundPush PythonJob::Bind(const std::string& name, nb::handle gradient, nb::handle out) {
  TensorMemory& tensor = FindDense(name);
  const std::vector<int64_t>& dims = tensor.registration.spec.dims;
  const DType dtype = tensor.registration.spec.dtype;
  ArrayArgument read =
      TakeArray(gradient, absl::StrCat(Quoted(name), ": gradient"), Access::kRead, dims, dtype);
  ArrayArgument written;
  if (!out.is_none())
    written = TakeArray(out, absl::StrCat(Quoted(name), ": out"), Access::kWrite, dims, dtype);
  if (Overlap(read.values.bytes(), written.values.bytes()))
    throw nb::value_error(
        absl::StrCat(Quoted(name), ": out: expected other memory than the gradient's").c_str());
  return BoundPush(*this, tensor, std::move(read), std::move(written));
}

PythonHandle PythonJob::BoundPush::Push(const PushOptions& options) {
  const std::string& name = tensor_.registration.spec.name;
  return job_.Track(tensor_,
                    job_.job().PushPull(name, read_.values, written_.values, options),
                    read_.owner,
                    written_.owner);
}

PythonHandle PythonJob::Pull(const std::string& name, nb::handle out, uint64_t min_step) {
  TensorMemory& tensor = FindDense(name);
  const TensorSpec& spec = tensor.registration.spec;
  ArrayArgument written =
      TakeArray(out, absl::StrCat(Quoted(name), ": out"), Access::kWrite, spec.dims, spec.dtype);
  return Track(
      tensor, job().Pull(name, written.values, Step{min_step}), Array(), std::move(written.owner));
}

PythonHandle PythonJob::PullOptimizerState(const std::string& name,
                                           nb::handle out,
                                           uint64_t min_step) {
  TensorMemory& tensor = FindDense(name);
  ArrayArgument written = TakeArray(out,
                                    absl::StrCat(Quoted(name), ": out"),
                                    Access::kWrite,
                                    StateDims(tensor.registration.spec));
  return Track(tensor,
               job().PullOptimizerState(name, written.values.floats(), Step{min_step}),
               Array(),
               std::move(written.owner));
}

PythonHandle PythonJob::PushRows(const std::string& name,
                                 nb::handle keys,
                                 nb::handle gradient,
                                 const PushOptions& options) {
  TensorMemory& tensor = FindRows(name);
  const KeysArgument rows = TakeKeys(keys, absl::StrCat(Quoted(name), ": keys"));
  const ArrayArgument read = TakeArray(gradient,
                                       absl::StrCat(Quoted(name), ": gradient"),
                                       Access::kRead,
                                       RowDims(tensor.registration.spec, rows));
  const std::shared_ptr<OpenJob> kept = open_;
  absl::StatusOr<PushHandle> pushed = [&] {
    const nb::gil_scoped_release release;
    return kept->job->PushRows(name, rows.keys, read.values.floats(), options);
  }();
  return Track(tensor, std::move(pushed), Array(), Array());
}

PythonHandle PythonJob::PullRows(const std::string& name,
                                 nb::handle keys,
                                 nb::handle out,
                                 uint64_t min_step) {
  TensorMemory& tensor = FindRows(name);
  const KeysArgument rows = TakeKeys(keys, absl::StrCat(Quoted(name), ": keys"));
  const std::vector<int64_t> dims = RowDims(tensor.registration.spec, rows);
  const nb::object target = out.is_none() ? EmptyRows(dims) : nb::borrow(out);
  ArrayArgument written =
      TakeArray(target, absl::StrCat(Quoted(name), ": out"), Access::kWrite, dims);
  const std::shared_ptr<OpenJob> kept = open_;
  absl::StatusOr<PushHandle> pulled = [&] {
    const nb::gil_scoped_release release;
    return kept->job->PullRows(name, rows.keys, written.values.floats(), Step{min_step});
  }();
  return Track(tensor, std::move(pulled), Array(), std::move(written.owner), target);
}

PythonHandle PythonJob::CommitSamples(bool are_done) {
  absl::StatusOr<PushHandle> handle = job().CommitSamples(are_done);
  Check(handle.status());
  return PythonHandle(*std::move(handle), open_);
}

StepSamples PythonJob::Samples(uint64_t steps_ahead) const {
  absl::StatusOr<StepSamples> samples = job().Samples(steps_ahead);
  Check(samples.status());
  return *std::move(samples);
}

nb::object PythonJob::Buffer(size_t num_values) {
  const absl::StatusOr<std::span<float>> values = job().AllocateBuffer(num_values);
  Check(values.status());
  auto owner = std::make_unique<std::shared_ptr<OpenJob>>(open_);
  const nb::capsule capsule(owner.release(), [](void* memory) noexcept {
    std::unique_ptr<std::shared_ptr<OpenJob>> last(static_cast<std::shared_ptr<OpenJob>*>(memory));
    const nb::gil_scoped_release release;
    last.reset();
  });
  return nb::cast(
      nb::ndarray<nb::numpy, float, nb::ndim<1>>(values->data(), {values->size()}, capsule));
}

void PythonJob::Leave(double seconds) {
  const Deadline deadline = DeadlineAfter(seconds);
  Job& job = this->job();
  const std::shared_ptr<OpenJob> kept = open_;
  Check(WaitInSlices(deadline, [&](Deadline slice) { return job.Leave(slice); }));
}

void PythonJob::Close() {
  std::shared_ptr<OpenJob> last = std::move(open_);
  if (last == nullptr) return;
  const nb::gil_scoped_release release;
  last.reset();
}

void PythonJob::CloseAtExit(bool leaves) {
  if (open_ == nullptr) return;
  // Not earlier, because objects that are made after it are destroyed before it is called.
  static const int failed = on_exit(EndJobs, nullptr);
  if (failed != 0) throw std::runtime_error("pushpull: the process takes no more exit functions");
  // The arrays are never released: the interpreter ends before the job does.
  JobsAtExit().push_back({std::move(open_), new std::map(std::move(tensors_)), leaves});
}

void EndJobs(int exit_code, void* /*unused*/) {
  int told_code = 0;
  for (const JobAtExit& last : JobsAtExit()) {
    if (last.leaves && exit_code == 0 && last.open->owner == getpid()) {
      const absl::Status left = last.open->job->Leave(Deadline::After(kLeaveAtExit));
      if (!left.ok())
        std::cerr << "pushpull: leaving the job at the program's end: " << left.message() << '\n';
      told_code = left.ok() ? std::max(told_code, last.open->job->exit_code()) : 1;
    }
    last.open->End();
  }
  if (told_code == 0) return;
  static_cast<void>(fflush(nullptr));
  _exit(told_code);
}

void EndAttempts() {
  std::erase_if(AbandonedAttempts(),
                [](const AbandonedAttempt& attempt) { return attempt.owner == getpid(); });
}

}  // namespace pushpull::python
