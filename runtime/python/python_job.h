// SPDX-License-Identifier: Apache-2.0
//
// A Job for the interpreter: it keeps every array allocated that the library reads or writes, waits
// without the interpreter lock and turns a status into an exception.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pushpull/job.h"

#include "runtime/python/array_argument.h"

namespace pushpull::python {

// Shared with the arrays of PythonJob::Buffer, whose memory is the job's. Empty once it is closed.
struct OpenJob {
  std::unique_ptr<Job> job;
};

// How a tensor is registered, aside of its name and value. The names are those of
// docs/interfaces.md.
struct TensorOptions {
  OptimizerSpec optimizer;
  std::string reduce = "mean";  // mean, sum, min, max
  std::string codec = "none";   // none, fp16, bf16, int8, topk, onebit
  bool keeps_value = true;
  double clip_norm = 0;  // 0: none
  // Of a row-sparse tensor.
  std::string init = "zeros";  // zeros, uniform, normal
  RowSpec rows;                // `init` of this is not used
};

// A part of a new value where it is.
using Piece = nanobind::ndarray<nanobind::numpy, const float, nanobind::ndim<1>>;

// A push or pull under way.
class PythonHandle {
 public:
  PythonHandle(PushHandle handle, std::weak_ptr<OpenJob> job, nanobind::object rows = {})
      : handle_(std::move(handle)), job_(std::move(job)), rows_(std::move(rows)) {}

  // Throws StatusError as PushHandle::Wait, and kFailedPrecondition when the job is closed.
  void Wait(double seconds);
  // Whether Wait would return, or throw, at once.
  bool IsDone();
  // PushHandle::Pieces, as one-dimensional read-only arrays.
  std::vector<Piece> Pieces() const;
  uint64_t Updates() const { return handle_.updates(); }
  // Of PullRows, the array that has them; None for other operations.
  nanobind::object Rows() const { return rows_.is_valid() ? rows_ : nanobind::none(); }

 private:
  PushHandle handle_;
  const std::weak_ptr<OpenJob> job_;
  nanobind::object rows_;
};

// Called with the interpreter lock held; every call but the waits returns at once.
class PythonJob {
 public:
  PythonJob(const std::map<std::string, std::string>& environment, double seconds);
  PythonJob(const PythonJob&) = delete;
  PythonJob& operator=(const PythonJob&) = delete;
  ~PythonJob();

  void UseSamples(const SampleSource& source) { Check(job().UseSamples(source)); }
  // Remembers a tensor for Start. Throws as TakeArray, and value_error for unknown names.
  void Add(const std::string& name, nanobind::handle value, const TensorOptions& options);
  // Likewise a row-sparse one of the shape `dims`; `value` has its first rows, or is None.
  void AddRows(const std::string& name,
               std::pair<int64_t, int64_t> dims,
               nanobind::handle value,
               const TensorOptions& options);
  // What the tensor's optimizer continues from; before Start. Throws as TakeArray.
  void SetOptimizerState(const std::string& name, nanobind::handle state, uint64_t updates);
  // Registers what was added. Blocks; a signal handler that raises ends the membership.
  void Start(double seconds);

  class BoundPush;

  // Checks the arrays once for many pushes. `out` may be None.
  BoundPush Bind(const std::string& name, nanobind::handle gradient, nanobind::handle out);
  PythonHandle Pull(const std::string& name, nanobind::handle out, uint64_t min_step);
  PythonHandle PullOptimizerState(const std::string& name, nanobind::handle out, uint64_t min_step);
  // Rows of a row-sparse tensor: those of `keys`. Both cut the request without the interpreter
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
  PythonHandle CommitSamples();
  StepSamples Samples(uint64_t steps_ahead) const;

  // Memory of Job::AllocateBuffer as an array of NumPy of `num_values` float32.
  nanobind::object Buffer(size_t num_values);

  void Leave(double seconds);
  // Ends the membership without a word to the other members, as a crash would. While arrays of
  // Buffer exist, the job ends with the last of them.
  void Close();
  // The program ends: the job is kept, with its arrays, until EndJobs. `pushpull run` kills a
  // worker that has no session, and the interpreter takes its time to end: the exit code would be
  // lost.
  void CloseAtExit();

  // Throws kFailedPrecondition when the job is closed.
  Job& job() const;
  // Held during a call without the interpreter lock.
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
    Array optimizer_state;              // likewise, until the job has started
    Array newest;                       // the last `out`, the copy of last resort
    std::vector<Operation> operations;  // under way, or failed: servers may still read those
  };

  static void Check(const absl::Status& status);
  // Throws kFailedPrecondition after Start, and value_error where `name` is registered.
  void CheckMayAdd(const std::string& name) const;
  void Remember(TensorRegistration registration, Array value);
  // Throws kNotFound.
  TensorMemory& FindRegistered(const std::string& name);
  // Likewise, and kFailedPrecondition before Start.
  TensorMemory& Find(const std::string& name);
  // Likewise, and kInvalidArgument unless it is row-sparse, or dense.
  TensorMemory& FindRows(const std::string& name);
  TensorMemory& FindDense(const std::string& name);
  PythonHandle Track(TensorMemory& tensor,
                     absl::StatusOr<PushHandle> handle,
                     Array read,
                     Array written,
                     nanobind::object rows = {});

  // Outlive the job, which uses them.
  std::vector<std::string> order_;
  std::map<std::string, TensorMemory> tensors_;
  bool has_started_ = false;
  std::shared_ptr<OpenJob> open_;
};

// Pushes of a tensor from and to the same arrays: nothing is looked up or checked again. Valid as
// long as its job, which it uses.
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

// The last thing that the interpreter does: ends the jobs of CloseAtExit, and waits for the
// attempts to join that Ctrl-C has left behind, a few seconds at most. Without the interpreter
// lock.
void EndJobs();

}  // namespace pushpull::python
