// SPDX-License-Identifier: Apache-2.0
//
// The C++ API of a worker's program. One Job is one worker's membership in a training job:
//
//   absl::StatusOr<std::unique_ptr<pushpull::Job>> job = pushpull::Job::Join(options, deadline);
//   (*job)->Register(tensors, deadline);  // their initial values in, the job's values out
//   for (Step step = (*job)->start_step(); step < last; step = (*job)->next_step()) {
//     ... compute the gradient ...
//     auto pending = (*job)->PushPull("w", gradient, w, {.samples = 64});
//     pending->Wait(deadline);
//   }
//   (*job)->Leave(deadline);
//   return (*job)->exit_code();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/collectives.h"
#include "pushpull/deadline.h"
#include "pushpull/ids.h"
#include "pushpull/log_level.h"
#include "pushpull/samples.h"
#include "pushpull/tensor_spec.h"
#include "pushpull/tensor_values.h"
#include "pushpull/tracing.h"

namespace pushpull {

// What a worker needs to join. `pushpull run` and the operator set all of it in the environment
// (docs/interfaces.md section 4).
struct JobOptions {
  std::string job;
  WorkerId worker;
  std::string coordinator;  // host:port
  // host:port of /metrics, /livez and /readyz; port 0: a free one.
  std::string metrics_listen = "127.0.0.1:0";
  LogLevel log_level = LogLevel::kInfo;
  std::string tls_folder;  // has ca.crt, tls.crt and tls.key; empty: no TLS
  // The folder for shared memory with servers on this host or in this pod; empty: sockets only.
  std::string shm_folder = "/dev/shm";
  // Mode AllReduce: where the other workers reach this one, host:port with a numeric host that is
  // an address of this machine; port 0: a free one. Empty: the job has servers.
  std::string ring = {};
  // That this host is in; workers of one rack sum their gradients first. Empty: not known.
  std::string rack = {};
  // Tensors travel in gRPC streams, for networks that admit only HTTP/2. Servers must be configured
  // alike. Disables shared memory.
  bool has_grpc = false;
  // Bytes that the kernel buffers for each connection and direction, and how many of them may be
  // unsent (0: all). Links with a higher bandwidth-delay product need a larger buffer; an urgent
  // tensor waits for what is already in it.
  int socket_buffer_bytes = 256 * 1024;
  int unsent_bytes = 64 * 1024;
  // Bypass the codecs of tensors (TensorSpec::codec) where steps are faster without, as on one
  // host: 32 of every 4,096 steps measure it. Sums then depend on timing, so deterministic jobs
  // ignore it.
  bool bypasses_codecs = false;
  // While a Job exists, SIGTERM calls TellToEnd instead of terminating the program; a second
  // SIGTERM terminates it at once, with exit code 143. No effect if the program handles, ignores or
  // blocks the signal.
  bool takes_sigterm = false;

  // Reads PUSHPULL_JOB, _INDEX, _COORDINATOR, _METRICS_PORT, _LOG_LEVEL, _TLS_DIR, _CHANNEL,
  // _SHM_DIR, _SOCKET_BUFFER_BYTES, _UNSENT_BYTES and _RING; takes_sigterm is set if PUSHPULL_ROLE
  // is "worker". kInvalidArgument names the variable that is missing or invalid.
  static absl::StatusOr<JobOptions> FromEnvironment(
      const std::map<std::string, std::string>& environment);
};

// A tensor to register and the memory that holds its value.
struct TensorRegistration {
  TensorSpec spec;
  // Of a row-sparse tensor (TensorSpec::rows): the initial rows of the keys 0 to rows - 1, read and
  // not written, or empty: every row begins as its initializer says. Registering copies it. Of any
  // other:
  // of spec.dtype, row-major, host byte order, as many elements as spec.dims says. The caller owns
  // it. In: the initial value; that of the first worker to register counts. Out: the job's value,
  // the same in every worker.
  TensorValues value;
  // Tensors with a smaller priority travel first, in both directions; they should be numbered in
  // the order of first use in the forward pass. Default: the position in the registered list.
  std::optional<uint8_t> priority;
  // Whether the program leaves the tensor's value where the library has put it: in `value`, and
  // after each PushPull in its `out`. Such memory is this worker's copy of the value. If a server
  // is lost and no other has its parameters (always with spec.servers.replication: 0), the job
  // continues from the workers' copies.
  //
  // true   The memory stays allocated, and nobody but the library writes to it, until a PushPull
  //        with another `out` is done, or Leave, or the job's end. Parameters in data-parallel
  //        training meet this. A Pull into other memory changes nothing; one into the same memory
  //        updates the copy. `out` is no copy while it contains a gradient.
  // false  The program may change the memory whenever no operation is under way. This worker has
  //        no copy of the tensor; if no other worker and no checkpoint has one, a lost server ends
  //        the job.
  //
  // A violation is detected when two workers' copies of a version differ, or when a copy changes
  // while it is sent: the job fails and names it.
  //
  // Without effect for row-sparse tensors, of which no worker has a copy.
  bool keeps_value = true;
  // Where the optimizer on the servers continues from, as PullOptimizerState returns it:
  // [StateFloatsPerValue, dims] float32, row-major. Empty: zeros, with `updates` 0. Belongs to the
  // initial value: where that of another worker counts, or of a checkpoint, so does its state. So
  // every worker passes the same one. Read during Register; the caller owns it. Not for row-sparse
  // tensors.
  std::span<const float> optimizer_state = {};
  uint64_t updates = 0;  // steps that the optimizer has made, for Adam's correction of the bias
};

struct PushOptions {
  double samples = 1;        // weight of this gradient in the mean
  double learning_rate = 0;  // of this step; 0: as registered. The lowest worker's counts
  // Parts of the new value that are in memory shared with a server on this host are not copied to
  // `out`: PushHandle::Pieces returns where each part is. For tensors with the optimizer Sum, in
  // mode Sync without backup workers; otherwise everything is in `out`. Parts outside `out` are no
  // copy for lost servers (TensorRegistration::keeps_value). Tensors of float32 only.
  bool in_place = false;
};

class PendingOperation;

// A push or pull under way. Movable; destroying it does not cancel anything. Thread-compatible.
class PushHandle {
 public:
  explicit PushHandle(std::shared_ptr<PendingOperation> pending) : pending_(std::move(pending)) {}

  // Blocks until the new version is in `out` (without `out`: until the push counts), or `deadline`
  // passes. May be called again.
  //
  // clang-format off
  //   kDeadlineExceeded  still under way. Names tensor, step and the servers without an answer.
  //                      Wait again.
  //   kUnavailable       the job has failed, e.g. because a server was lost. Names peer, tensor and
  //                      step. End the process with an exit code other than 0.
  //   kInvalidArgument   a server rejected the gradient (a NaN with spec.sync.nonFinite: Fail); the
  //                      job fails. Correct the program.
  //   kAborted           this worker is no longer a member. End the process; it is replaced.
  //   kCancelled         the job has ended, or this process was told to end before its first step.
  //                      End the process with exit_code().
  // clang-format on
  absl::Status Wait(Deadline deadline);

  // For a push with `in_place`, after Wait has returned OK: the new value, in the tensor's order.
  // Read-only. Valid while the handle exists, until the program's next push of the tensor or Leave;
  // invalid if that push or Wait returns kAborted.
  std::vector<std::span<const float>> Pieces() const;

  // For PullOptimizerState, after Wait has returned OK: the steps that the optimizer has made. 0
  // where it keeps no state.
  uint64_t updates() const;

 private:
  std::shared_ptr<PendingOperation> pending_;
};

// The meaning of a step depends on the job's mode. The program is the same in all modes, also when
// the mode changes at run time, which may delay a push.
//
//   Sync     Adds up the gradients of all workers. Wait returns when all have pushed the step; the
//            new value includes exactly the steps up to it. With backup workers
//            (spec.sync.backupWorkers) a step has the gradients of the first workers that have
//            pushed all tensors; those of the others are dropped, and they receive the newest step,
//            which next_step() tells. Gated steps (spec.sync.gated) have the same contributors in
//            every tensor, even if a worker dies. In both, push all tensors before you wait.
//   Async    Each worker counts its own steps. Wait returns when this worker's gradient is applied;
//            the new value has all own steps and what others have pushed by then. Each push has its
//            own learning rate.
//   Bounded  As Async, and the value of a pull or push_pull has all steps of every worker except
//            the last `staleness` before this worker's: it waits for them. A push without `out`
//            does not wait.
//   AllReduce  As Sync, among the workers and without servers. A step is taken for all tensors at
//            once: push all of them before you wait for one. Codecs, clip_norm, row-sparse tensors,
//            reductions other than mean and sum, and collectives() are refused.
//
// Thread-safe, except that the pushes of one tensor must come from one thread, in the order of
// their steps.
class Job {
 public:
  virtual ~Job() = default;

  // Connects to the coordinator and registers this worker. Blocks until `deadline`; a coordinator
  // that is not there yet, or starts again, is waited for.
  //
  // clang-format off
  //   kUnavailable         no coordinator has answered. Names its address. May be retried.
  //   kDeadlineExceeded    no answer by `deadline`. May be retried.
  //   kFailedPrecondition  the coordinator rejects this worker (another job, an index out of range).
  //                        Correct `options`.
  //   kNotFound, kPermissionDenied, kInvalidArgument
  //                        a file in options.tls_folder, which is named, is missing or invalid.
  // clang-format on
  static absl::StatusOr<std::unique_ptr<Job>> Join(const JobOptions& options, Deadline deadline);

  // The workers divide `source` among themselves: after Register, Samples() returns this worker's
  // part of its next step. Every worker calls this with the same arguments, before Register.
  // spec.workers.globalBatch, if set, replaces `source.batch`. In a job that started in mode Async
  // or Bounded each worker has a fixed part, one of spec.workers.replicas. Never blocks.
  //
  // clang-format off
  //   kInvalidArgument     a number is 0.
  //   kFailedPrecondition  the tensors are registered already.
  // clang-format on
  virtual absl::Status UseSamples(const SampleSource& source) = 0;

  // Registers the worker's tensors, all at once and before the first push. Blocks until every
  // worker that the job starts with has done so and the job's values are in `value`, or `deadline`
  // passes.
  //
  // clang-format off
  //   kInvalidArgument   a shape is invalid, a name occurs twice or begins with "pushpull.", a state
  //                      of the optimizer has another length than its kind needs, or another worker
  //                      registered the tensor differently; the text says how.
  //   kDeadlineExceeded  not all servers and workers have joined yet.
  // clang-format on
  virtual absl::Status Register(std::span<const TensorRegistration> tensors, Deadline deadline) = 0;

  // Memory for gradients that servers on this host or in this pod read in place, without a copy.
  // Zero-initialized, page-aligned, owned by the Job. If it cannot be shared it is ordinary memory,
  // which is logged once. Its bytes may hold values of any DType; those of other types than float32
  // are copied once by the server. Allocate one buffer for all gradients: each takes a file
  // descriptor, and gradients in it are copied until the servers have it, in the first steps.
  //
  // Servers may still read a gradient whose push has failed: if Wait returns an error other than
  // kDeadlineExceeded, leave the gradient unchanged until the Job is destroyed.
  //
  //   kResourceExhausted  out of memory.
  virtual absl::StatusOr<std::span<float>> AllocateBuffer(size_t num_values) = 0;

  // Adds `gradient` to the tensor's current step and receives the new value into `out`. Does not
  // block on the network.
  //
  // clang-format off
  //   gradient  of the registered type and size. The caller's; unchanged until the handle is done.
  //   out       likewise, written until the handle is done; or empty: no value is received.
  //             Must not overlap `gradient`.
  //
  //   kNotFound         no such tensor.
  //   kInvalidArgument  sizes or types differ, or `in_place` with another type than float32.
  //   kCancelled        this process was told to end and its last step is done; the library leaves
  //                     the job. End the process with exit_code().
  // clang-format on
  virtual absl::StatusOr<PushHandle> PushPull(absl::string_view tensor,
                                              ConstTensorValues gradient,
                                              TensorValues out,
                                              const PushOptions& options) = 0;

  // Receives the tensor's value of version `min_version` or later into `out`, which is the caller's
  // and written until the handle is done. Does not block. Errors as PushPull.
  virtual absl::StatusOr<PushHandle> Pull(absl::string_view tensor,
                                          TensorValues out,
                                          Step min_version) = 0;

  // Receives the state of the tensor's optimizer, as it belongs to version `min_version` or later:
  // to save it, and to register with it again (TensorRegistration::optimizer_state). Does not
  // block; one pull of a tensor at a time, of its value or of this.
  //
  // clang-format off
  //   out  [StateFloatsPerValue, dims] float32: SGD with momentum: b; Adagrad: s; Adam and AdamW: m,
  //        then v. The caller's and written until the handle is done. Empty for the other kinds.
  //
  //   kNotFound         no such tensor.
  //   kInvalidArgument  `out` has another length; the text says which it needs. Or the tensor is
  //                     row-sparse.
  // clang-format on
  virtual absl::StatusOr<PushHandle> PullOptimizerState(absl::string_view tensor,
                                                        std::span<float> out,
                                                        Step min_version) = 0;

  // Row-sparse tensors (TensorSpec::rows). PushRows adds gradients of some rows to the tensor's
  // current step; every worker calls it once a step, also for no rows. The handle is done when the
  // step is. PullRows receives rows as they are in version `min_version` or later, those that no
  // step has pushed as they begin; Job::next_step is the version that the next step begins with.
  // Neither blocks on the network; the push reads its arguments during the call, `out` is written
  // until the handle is done.
  //
  // clang-format off
  //   keys            any order. Gradients of a key that comes several times are added up.
  //   gradient, out   [keys, dim] float32, row-major.
  //   options         without in_place.
  //
  //   kNotFound           no such tensor.
  //   kInvalidArgument    sizes differ, or the tensor is dense; PushPull and Pull of a row-sparse
  //                       tensor return the same.
  //   kResourceExhausted  so many rows do not fit into one of the tensor's chunks: register it with
  //                       more rows. The handle has this error where the rows of earlier steps, or
  //                       of other workers, come on top; then the job fails.
  //   kCancelled          as PushPull.
  // clang-format on
  virtual absl::StatusOr<PushHandle> PushRows(absl::string_view tensor,
                                              std::span<const uint64_t> keys,
                                              std::span<const float> gradient,
                                              const PushOptions& options) = 0;
  virtual absl::StatusOr<PushHandle> PullRows(absl::string_view tensor,
                                              std::span<const uint64_t> keys,
                                              std::span<float> out,
                                              Step min_version) = 0;

  // This worker's samples of its next step. They change when CommitSamples is done; not to be
  // called while one is under way. Never blocks.
  //
  // clang-format off
  //   kFailedPrecondition  UseSamples and Register were not called.
  //   kDataLoss            the job's position in its data set is damaged. End the process.
  // clang-format on
  absl::StatusOr<StepSamples> Samples() const { return SamplesAhead(0); }

  // This worker's samples of the step that comes `steps` after its next one, if until then nobody
  // joins, leaves or fails, and the batch stays: for data that is loaded ahead. Compare with
  // Samples() when the step has come. Otherwise as Samples.
  virtual absl::StatusOr<StepSamples> SamplesAhead(uint64_t steps) const = 0;

  // Reports that this worker has done its samples of the step: the last push of the step. When the
  // handle is done, Samples() returns those of the next step. The samples of a worker that dies
  // before are assigned again.
  //
  // clang-format off
  //   kFailedPrecondition  UseSamples was not called.
  //   kCancelled           as PushPull.
  // clang-format on
  virtual absl::StatusOr<PushHandle> CommitSamples() = 0;

  // Arrays that all workers agree on: a metric, a decision to stop. After Register.
  virtual Collectives& collectives() = 0;

  // Whether the worker must leave, because the job is smaller now (`pushpull scale`) or the process
  // was told to end (SIGTERM): finish the step under way, Leave, and end with exit_code().
  // Samples() include this. Never blocks.
  virtual bool is_released() const = 0;

  // The process must end: it leaves the job after the step under way, and another process replaces
  // it. For programs that handle SIGTERM themselves. From any thread, but not from a signal
  // handler. Never blocks.
  virtual void TellToEnd() = 0;

  // The program's exit code after it has left, or after an error that removed it from the job: 0,
  // or 143 if it was told to end before its part was done, so that it is restarted.
  virtual int exit_code() const = 0;

  // The first step of this worker: 0, or later if it joined or replaced another.
  // Valid after Register.
  virtual Step start_step() const = 0;
  // The step of the next push, valid while none is under way: one more than the last, or later if
  // the job has continued without this worker (backup workers).
  virtual Step next_step() const = 0;
  virtual WorkerId worker() const = 0;
  virtual uint32_t workers() const = 0;  // spec.workers.replicas

  // For progress, report and metrics. Never block.
  virtual void ReportLoss(Step step, double loss, uint64_t samples) = 0;
  virtual void ReportResult(absl::string_view name, double value) = 0;
  // For `pushpull trace`. Valid for as long as the Job.
  virtual Tracing& tracing() = 0;

  // Leaves the job: from the next step on nobody waits for this worker, and nothing can be pushed.
  // Blocks until the coordinator has confirmed it or `deadline` passes. A further call waits for
  // the same.
  //
  // clang-format off
  //   kDeadlineExceeded  not confirmed yet. End the process anyway, or call again.
  //   others             as PushHandle::Wait.
  // clang-format on
  virtual absl::Status Leave(Deadline deadline) = 0;
};

}  // namespace pushpull
