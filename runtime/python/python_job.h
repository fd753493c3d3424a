// SPDX-License-Identifier: Apache-2.0
//
// A Job for the interpreter: keeps every array allocated that the library reads or writes, waits
// without the interpreter lock, and turns statuses into exceptions.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pushpull/job.h"

#include "runtime/python/array_argument.h"

namespace pushpull::python {

// Shared with the arrays of PythonJob::Buffer, whose memory belongs to the job. Empty once the job
// is closed.
struct OpenJob {
  explicit OpenJob(std::unique_ptr<Job> joined) : job(std::move(joined)) {}
  ~OpenJob() { End(); }
  OpenJob(const OpenJob&) = delete;
  OpenJob& operator=(const OpenJob&) = delete;
  // Ends the membership. In a forked process it leaves the job to the parent: the job's threads,
  // for which this would wait, are not there.
  void End();

  std::unique_ptr<Job> job;
  const pid_t owner = getpid();
};

// How a tensor is registered, apart from its name and value. Names are those of docs/interfaces.md.
struct TensorOptions {
  OptimizerSpec optimizer;
  std::string reduce = "mean";  // mean, sum, min, max
  std::string codec = "none";   // none, fp16, bf16, int8, topk, onebit
  bool keeps_value = true;
  double clip_norm = 0;  // 0: none
  // Only for row-sparse tensors.
  std::string init = "zeros";  // zeros, uniform, normal
  RowSpec rows;                // its own `init` is not used
};

// A part of a new value, in place.
using Piece = nanobind::ndarray<nanobind::numpy, const float, nanobind::ndim<1>>;

// A push or pull in progress.
class PythonHandle {
 public:
  PythonHandle(PushHandle handle, std::weak_ptr<OpenJob> job, nanobind::object rows = {})
      : handle_(std::move(handle)), job_(std::move(job)), rows_(std::move(rows)) {}

  // Throws StatusError with the errors of PushHandle::Wait, and kFailedPrecondition if the job is
  // closed.
  void Wait(std::optional<double> seconds);
  // Whether Wait would return or throw at once.
  bool IsDone();
  // PushHandle::Pieces, as one-dimensional read-only arrays.
  std::vector<Piece> Pieces() const;
  uint64_t Updates() const { return handle_.updates(); }
  bool HasGradient() const { return handle_.has_gradient(); }
  // For PullRows, the array with the rows; None for other operations.
  nanobind::object Rows() const { return rows_.is_valid() ? rows_ : nanobind::none(); }

 private:
  PushHandle handle_;
  const std::weak_ptr<OpenJob> job_;
  nanobind::object rows_;
};

// Called with the interpreter lock held; every call except the waits returns at once.
class PythonJob {
 public:
  PythonJob(const std::map<std::string, std::string>& environment, double seconds);
  PythonJob(const PythonJob&) = delete;
  PythonJob& operator=(const PythonJob&) = delete;
  ~PythonJob();

  void UseSamples(uint64_t num_samples,
                  uint64_t epochs,
                  uint64_t batch,
                  bool is_global_batch,
                  bool drops_last) {
    Check(job().UseSamples({num_samples, epochs, batch, is_global_batch, drops_last}));
  }
  // Remembers a tensor for Start. Throws like TakeArray, and value_error for unknown names.
  void Add(const std::string& name, nanobind::handle value, const TensorOptions& options);
  // The same for a row-sparse tensor of shape `dims`; `value` has its first rows, or is None.
  void AddRows(const std::string& name,
               std::pair<int64_t, int64_t> dims,
               nanobind::handle value,
               const TensorOptions& options);
  // Sets the state from which the tensor's optimizer continues; before Start. Throws like
  // TakeArray.
  void SetOptimizerState(const std::string& name, nanobind::handle state, uint64_t updates);
  // Registers the added tensors. Blocks; a signal handler that raises ends the membership.
  void Start(double seconds);

  class BoundPush;

  // Checks the arrays once, for many pushes. `out` may be None.
  BoundPush Bind(const std::string& name, nanobind::handle gradient, nanobind::handle out);
  PythonHandle Pull(const std::string& name, nanobind::handle out, uint64_t min_step);
  PythonHandle PullOptimizerState(const std::string& name, nanobind::handle out, uint64_t min_step);
  // The rows of `keys` in a row-sparse tensor. Both calls split the request without the interpreter
  // lock.
  PythonHandle PushRows(const std::string& name,
                        nanobind::handle keys,
                        nanobind::handle gradient,
                        const PushOptions& options);
  // `out` may be None: then PythonHandle::Rows is a new array.
  PythonHandle PullRows(const std::string& name,
                        nanobind::handle keys,
                        nanobind::handle out,
                        uint64_t min_step);
  PythonHandle CommitSamples(bool are_done);
  void EndStep() { Check(job().EndStep()); }
  StepSamples Samples(uint64_t steps_ahead) const;

  // Memory of Job::AllocateBuffer as a NumPy array of `num_values` float32.
  nanobind::object Buffer(size_t num_values);

  void Leave(double seconds);
  // Ends the membership without notifying the other members, as a crash would. While arrays of
  // Buffer exist, the job ends with the last of them.
  void Close();
  // For the end of the program: keeps the job and its arrays until the process ends, which then
  // leaves the job if `leaves` and its exit code is 0. `pushpull run` kills a worker that has no
  // session, and the interpreter takes a while to end: the exit code would be lost.
  void CloseAtExit(bool leaves);

  // Throws kFailedPrecondition if the job is closed.
  Job& job() const;
  // Hold it during a call without the interpreter lock.
  const std::shared_ptr<OpenJob>& open() const { return open_; }

 private:
  struct Operation {
    PushHandle handle;
    Array read, written;
    Array replaced;  // the copy of last resort until this one is done
  };
  // A tensor and the arrays that the library may use.
  struct TensorMemory {
    TensorRegistration registration;
    Array value;                        // as registered
    Array optimizer_state;              // likewise, until the job starts
    Array newest;                       // the last `out`, the copy of last resort
    std::vector<Operation> operations;  // in progress, or failed: servers may still read them
  };

  static void Check(const absl::Status& status);
  // Throws kFailedPrecondition after Start, and value_error if `name` is already registered.
  void CheckMayAdd(const std::string& name) const;
  void Remember(TensorRegistration registration, Array value);
  // Throws kNotFound.
  TensorMemory& FindRegistered(const std::string& name);
  // Also throws kFailedPrecondition before Start.
  TensorMemory& Find(const std::string& name);
  // Also throw kInvalidArgument unless the tensor is row-sparse, or dense.
  TensorMemory& FindRows(const std::string& name);
  TensorMemory& FindDense(const std::string& name);
  PythonHandle Track(TensorMemory& tensor,
                     absl::StatusOr<PushHandle> handle,
                     Array read,
                     Array written,
                     nanobind::object rows = {});

  // These outlive the job, which uses them.
  std::vector<std::string> order_;
  std::map<std::string, TensorMemory> tensors_;
  bool has_started_ = false;
  std::shared_ptr<OpenJob> open_;
};

// Pushes of a tensor from and to the same arrays, without looking up or checking anything again.
// Must not outlive its job.
class PythonJob::BoundPush {
 public:
  PythonHandle Push(const PushOptions& options);

 private:
  friend class PythonJob;
  BoundPush(PythonJob& job, TensorMemory& tensor, ArrayArgument read, ArrayArgument written)
      : job_(job), tensor_(tensor), read_(std::move(read)), written_(std::move(written)) {}

  PythonJob& job_;
  TensorMemory& tensor_;
  ArrayArgument read_, written_;
};

// The interpreter's last call: waits, for a few seconds at most, for attempts to join that Ctrl-C
// has interrupted. Runs without the interpreter lock.
void EndAttempts();
// As of on_exit(3): ends the jobs of CloseAtExit. If the job tells a program that would end with 0
// to end with another code, ends the process with that.
void EndJobs(int exit_code, void* unused);

}  // namespace pushpull::python
