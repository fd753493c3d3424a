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
#include "pushpull/program_state.h"
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
  // host:port of /metrics, /livez and /readyz; port 0: any free port.
  std::string metrics_listen = "127.0.0.1:0";
  LogLevel log_level = LogLevel::kInfo;
  std::string tls_folder;  // has ca.crt, tls.crt and tls.key; empty: no TLS
  // Folder for shared memory with servers on this host or in this pod; empty: sockets only.
  std::string shm_folder = "/dev/shm";
  // Mode AllReduce: where the other workers reach this one, host:port with a numeric host that is
  // an address of this machine; port 0: any free port. Empty: the job has servers.
  std::string ring = {};
  // Rack of this host; workers of one rack sum their gradients first. Empty: unknown.
  std::string rack = {};
  // With spec.sync.localReduce: host:port where the other workers of the group reach this one; port
  // 0 is any free one. Empty: it pushes alone.
  std::string group = {};
  // The name of this host, which tells localReduce Host who is on the same one. May be empty if all
  // of the job's workers are.
  std::string node = {};
  // Tensors travel in gRPC streams, for networks that pass only HTTP/2. Servers must be configured
  // the same way. Disables shared memory.
  bool has_grpc = false;
  // Size of the kernel's buffer for each connection and direction, and how many of its bytes may be
  // unsent (0: all). Links with a higher bandwidth-delay product need a larger buffer; an urgent
  // tensor has to wait for what is already in it.
  int socket_buffer_bytes = 256 * 1024;
  int unsent_bytes = 64 * 1024;
  // Bypasses the tensors' codecs (TensorSpec::codec) where steps are faster without them, as on one
  // host; 32 of every 4,096 steps measure this. Sums then depend on timing, so deterministic jobs
  // ignore this option.
  bool bypasses_codecs = false;
  // While a Job exists, SIGTERM calls TellToEnd instead of terminating the program; a second
  // SIGTERM terminates it at once, with exit code 143. No effect if the program handles, ignores or
  // blocks the signal.
  bool takes_sigterm = false;
  // The file in which this process tells its supervisor that it leaves because it was released, and
  // has to be started again if the job grows. Empty: nobody watches.
  std::string termination_log = {};

  // Reads PUSHPULL_JOB, _INDEX, _COORDINATOR, _METRICS_PORT, _LOG_LEVEL, _TLS_DIR, _CHANNEL,
  // _SHM_DIR, _SOCKET_BUFFER_BYTES, _UNSENT_BYTES, _RING, _RACK, _GROUP, _NODE and
  // _TERMINATION_LOG; takes_sigterm is set if PUSHPULL_ROLE is "worker". kInvalidArgument names the
  // variable that is missing or invalid.
  static absl::StatusOr<JobOptions> FromEnvironment(
      const std::map<std::string, std::string>& environment);
};

// A tensor to register and the memory that holds its value.
struct TensorRegistration {
  TensorSpec spec;
  // For a row-sparse tensor (TensorSpec::rows): the initial rows of keys 0 to rows - 1, read but
  // not written, and copied by Register; or empty: every row starts as RowSpec::init says. For any
  // other tensor: of spec.dtype, row-major, host byte order, as many elements as spec.dims says.
  // The caller owns it. In: the initial value; that of the first worker to register counts. Out:
  // the job's value, the same in every worker.
  TensorValues value;
  // Tensors with a smaller number travel first, in both directions; number them in the order of
  // first use in the forward pass. Default: the position in the registered list.
  std::optional<uint8_t> priority;
  // Whether the program leaves the tensor's value where the library has put it: in `value` at
  // first, in `out` after each PushPull. That memory is this worker's copy of the value. If a
  // server is lost and no other has its parameters (always with spec.servers.replication: 0), the
  // job continues from the workers' copies.
  //
  // true   The memory stays allocated, and only the library writes to it, until a PushPull with
  //        another `out` is done, Leave is called, or the job ends. Parameters in data-parallel
  //        training meet this. A Pull into other memory changes nothing; one into the same memory
  //        updates the copy. `out` is not a copy while it contains a gradient.
  // false  The program may change the memory whenever no operation is under way. This worker has
  //        no copy of the tensor; if no other worker and no checkpoint has one, a lost server ends
  //        the job.
  //
  // A violation is detected when two workers' copies of a version differ, or when a copy changes
  // while it is being sent: the job fails and names the violation.
  //
  // No effect for row-sparse tensors, of which no worker has a copy.
  bool keeps_value = true;
  // The state from which the optimizer on the servers continues, as PullOptimizerState returns it:
  // [StateFloatsPerValue, dims] float32, row-major. Empty: zeros, with `updates` 0. It belongs to
  // the initial value: if the value comes from another worker or a checkpoint, so does the state.
  // Every worker should therefore pass the same one. Read during Register; owned by the caller. Not
  // for row-sparse tensors.
  std::span<const float> optimizer_state = {};
  uint64_t updates = 0;  // updates the optimizer has made, for Adam's bias correction
};

struct PushOptions {
  // Weight of this gradient in the mean: 0, or from 1e-18 to 1e18.
  double samples = 1;
  // Of this step; 0: as registered. The lowest-indexed worker's counts.
  double learning_rate = 0;
  // Parts of the new value that are in memory shared with a server on this host are not copied to
  // `out`: PushHandle::Pieces returns where each part is. For tensors with the optimizer Sum, in
  // mode Sync without backup workers; otherwise everything is in `out`. Parts outside `out` do not
  // count as copies for loss recovery (TensorRegistration::keeps_value). float32 tensors only.
  bool in_place = false;
  // false: this worker has no gradient of the tensor in this step, e.g. because it is frozen or was
  // not used. It contributes zeros, with its samples as their weight, and `gradient` is not read:
  // it may be empty. If no worker has a gradient, the optimizer is not run: the value, its state
  // and the number of updates stay, so that momentum and weight decay do nothing, as in PyTorch.
  // With the optimizer Sum the value is then zeros. With reductions other than mean and sum the
  // push does not count, and if none does, the value stays. In PushRows: no keys.
  bool has_gradient = true;
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
  //   kDeadlineExceeded  still under way. Names tensor, step and the servers yet to answer.
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

  // For PullOptimizerState, after Wait has returned OK: the number of updates that the optimizer
  // has made; 0 if it keeps no state.
  uint64_t updates() const;

  // For a push, after Wait has returned OK: whether any worker's gradient counted in its step, the
  // same in every worker; in modes Async and Bounded, whether this push had one. A gradient without
  // samples does not count in a mean. True for other operations.
  bool has_gradient() const;

 private:
  std::shared_ptr<PendingOperation> pending_;
};

// The meaning of a step depends on the job's mode. The same program works in all modes, even if the
// mode changes at run time, which may delay a push.
//
//   Sync     Adds up the gradients of all workers. Wait returns when all have pushed the step; the
//            new value includes exactly the steps up to it. All tensors have the same number of
//            steps: each is pushed once in every step of every worker, with zeros where there is no
//            gradient, or never (then the workers cannot change). With backup workers
//            (spec.sync.backupWorkers) a step has the gradients of the first workers that have
//            pushed all tensors; the gradients of the others are dropped, and they continue with
//            the newest step, which next_step() returns. Gated steps (spec.sync.gated) have the
//            same contributors in every tensor, even if a worker dies. In both, push all tensors
//            before you wait.
//   Async    Each worker counts its own steps. Wait returns when this worker's gradient is applied;
//            the new value includes all of this worker's steps and what others have pushed by then.
//            Each push has its own learning rate.
//   Bounded  As Async, but a Pull or PushPull is not done before the value includes all steps of
//            every worker except the last `staleness` before this worker's. A push without `out`
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

  // Connects to the coordinator and registers this worker. Blocks until that is done or `deadline`
  // passes; waits for a coordinator that is not up yet or is restarting.
  //
  // clang-format off
  //   kUnavailable         no coordinator has answered. Names its address. May be retried.
  //   kDeadlineExceeded    no answer by `deadline`. May be retried.
  //   kFailedPrecondition  the coordinator rejects this worker (another job, index out of range).
  //                        Correct `options`.
  //   kNotFound, kPermissionDenied, kInvalidArgument
  //                        a file in options.tls_folder is missing or invalid; the text names it.
  // clang-format on
  static absl::StatusOr<std::unique_ptr<Job>> Join(const JobOptions& options, Deadline deadline);

  // The workers divide `source` among themselves: after Register, Samples() returns this worker's
  // part of its next step. Every worker calls this with the same arguments, before Register.
  // spec.workers.globalBatch, if set, replaces `source.batch`. In modes Async and Bounded each
  // worker takes the next samples when it has done its own. Never blocks.
  //
  // clang-format off
  //   kInvalidArgument     a number in `source` is 0.
  //   kFailedPrecondition  the tensors are already registered.
  // clang-format on
  virtual absl::Status UseSamples(const SampleSource& source) = 0;

  // Registers the worker's tensors, all at once and before the first push. Blocks until every
  // worker that the job starts with has done the same and the job's values are in `value`, or
  // `deadline` passes.
  //
  // clang-format off
  //   kInvalidArgument   a shape is invalid, a name occurs twice or begins with "pushpull.", an
  //                      optimizer state has the wrong length for its kind, or another worker
  //                      registered the tensor differently; the text says how.
  //   kDeadlineExceeded  not all servers and workers have joined yet.
  // clang-format on
  virtual absl::Status Register(std::span<const TensorRegistration> tensors, Deadline deadline) = 0;

  // Allocates memory for gradients that servers on this host or in this pod read in place, without
  // a copy. Zero-initialized, page-aligned, owned by the Job. Falls back to ordinary memory, which
  // is logged once, if it cannot be shared. May hold values of any DType; the server copies those
  // other than float32 once. Allocate one buffer for all gradients: each takes a file descriptor,
  // and during the first steps, until the servers have the buffer, gradients in it are copied.
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
  //   gradient  of the registered type and size. Owned by the caller, who must not change it until
  //             the handle is done. Ignored without options.has_gradient.
  //   out       likewise, written until the handle is done; or empty: no value is received.
  //             Must not overlap `gradient`.
  //
  //   kNotFound         no such tensor.
  //   kInvalidArgument  sizes or types differ, or a number in `options` is out of range, or
  //                     `in_place` with a type other than float32, or no gradient with a reduction
  //                     other than mean and sum.
  //   kCancelled        this process was told to end and its last step is done; the library leaves
  //                     the job. End the process with exit_code().
  //   kFailedPrecondition  Sync and AllReduce: another tensor is not pushed in the step under way
  //                     yet, or this one was not pushed in an earlier step. Names it. Correct the
  //                     program.
  // clang-format on
  virtual absl::StatusOr<PushHandle> PushPull(absl::string_view tensor,
                                              ConstTensorValues gradient,
                                              TensorValues out,
                                              const PushOptions& options) = 0;

  // The program has pushed everything in the step under way. Optional: tells a program that leaves
  // a tensor out before it waits, instead of with its next push, CommitSamples or Leave. Never
  // blocks.
  //
  //   kFailedPrecondition  as for PushPull. With backup workers, gated steps and in AllReduce also
  //                        for a tensor that is never pushed.
  virtual absl::Status EndStep() = 0;

  // Receives the tensor's value at version `min_version` or later into `out`, which the caller owns
  // and which is written until the handle is done. Does not block. Errors as for PushPull.
  virtual absl::StatusOr<PushHandle> Pull(absl::string_view tensor,
                                          TensorValues out,
                                          Step min_version) = 0;

  // Receives the state of the tensor's optimizer at version `min_version` or later, e.g. to save it
  // and register with it again (TensorRegistration::optimizer_state). Does not block. One pull of a
  // tensor at a time, whether of its value or of its state.
  //
  // clang-format off
  //   out  [StateFloatsPerValue, dims] float32: SGD with momentum: b; Adagrad: s; Adam and AdamW:
  //        m, then v. Owned by the caller, written until the handle is done. Empty for other
  //        kinds.
  //
  //   kNotFound         no such tensor.
  //   kInvalidArgument  `out` has the wrong length; the text gives the right one. Or the tensor is
  //                     row-sparse.
  // clang-format on
  virtual absl::StatusOr<PushHandle> PullOptimizerState(absl::string_view tensor,
                                                        std::span<float> out,
                                                        Step min_version) = 0;

  // Row-sparse tensors (TensorSpec::rows). PushRows adds gradients of some rows to the tensor's
  // current step; every worker calls it once per step, even with no rows. The handle is done when
  // the step is. PullRows receives rows as of version `min_version` or later; rows that no step has
  // pushed have their initial values. Job::next_step is the version from which the next step
  // starts. Neither blocks on the network; PushRows reads its arguments during the call, and `out`
  // is written until the handle is done.
  //
  // clang-format off
  //   keys            any order. Gradients of a key that occurs several times are added up.
  //   gradient, out   [keys, dim] float32, row-major.
  //   options         without in_place.
  //
  //   kNotFound           no such tensor.
  //   kInvalidArgument    sizes differ, or the tensor is dense; PushPull and Pull of a row-sparse
  //                       tensor return the same. Or there are keys without options.has_gradient.
  //   kResourceExhausted  the rows do not fit into one of the tensor's chunks: register it with
  //                       more rows. If the rows of earlier steps or other workers are what exceeds
  //                       the limit, the handle returns this error and the job fails.
  //   kCancelled          as for PushPull.
  // clang-format on
  virtual absl::StatusOr<PushHandle> PushRows(absl::string_view tensor,
                                              std::span<const uint64_t> keys,
                                              std::span<const float> gradient,
                                              const PushOptions& options) = 0;
  virtual absl::StatusOr<PushHandle> PullRows(absl::string_view tensor,
                                              std::span<const uint64_t> keys,
                                              std::span<float> out,
                                              Step min_version) = 0;

  // This worker's samples of its next step. They change when a CommitSamples is done; must not be
  // called while one is under way. Never blocks. `ahead`: those of the step so many after its next
  // one, provided that until then nobody joins, leaves or fails and the batch stays the same: for
  // loading data ahead. Compare with Samples() when the step has come.
  //
  // clang-format off
  //   kFailedPrecondition  UseSamples or Register was not called, or the job has another data set.
  //   kDataLoss            the job's position in its data set is damaged. End the process.
  //   kResourceExhausted   Async and Bounded: too many workers share the data set.
  // clang-format on
  // NOLINTNEXTLINE(google-default-arguments): programs call it on a Job; overrides have no default
  virtual absl::StatusOr<StepSamples> Samples(uint64_t ahead = 0) const = 0;

  // Reports that this worker has processed its samples of the step; the last push of the step. When
  // the handle is done, Samples() returns those of the next step. If a worker dies before that, its
  // samples are assigned again. With `are_done` false only that the step is over: the worker goes
  // on with the same samples in the next one, as long as the workers stay the same. For programs
  // that make several steps with a batch; all workers do it in the same steps.
  //
  // clang-format off
  //   kFailedPrecondition  UseSamples was not called, or a tensor is not pushed in this step.
  //   kCancelled           as for PushPull.
  // clang-format on
  // NOLINTNEXTLINE(google-default-arguments): likewise
  virtual absl::StatusOr<PushHandle> CommitSamples(bool are_done = true) = 0;

  // State of the program's own in checkpoints. Valid until the job is destroyed.
  virtual ProgramState& state() = 0;

  // For arrays that all workers agree on: a metric, a decision to stop. Valid after Register.
  virtual Collectives& collectives() = 0;

  // Whether the worker must leave, because the job has shrunk (`pushpull scale`) or the process was
  // told to end (SIGTERM): finish the step under way, call Leave, and exit with exit_code().
  // Samples() takes this into account. Never blocks.
  virtual bool is_released() const = 0;

  // Announces that the process must end: it leaves the job after the step under way, and another
  // process replaces it. For programs that handle SIGTERM themselves. From any thread, but not from
  // a signal handler. Never blocks.
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

  // For the job's progress, report and metrics. Never block.
  virtual void ReportLoss(Step step, double loss, uint64_t samples) = 0;
  // kInvalidArgument: the name has more than 300 bytes, or there are more than 1,024 names.
  virtual absl::Status ReportResult(absl::string_view name, double value) = 0;
  // For `pushpull trace`. Valid for as long as the Job.
  virtual Tracing& tracing() = 0;

  // Leaves the job: from the next step on nobody waits for this worker, and it cannot push. Blocks
  // until the coordinator has confirmed this or `deadline` passes. Further calls wait for the same
  // confirmation.
  //
  // clang-format off
  //   kDeadlineExceeded  not confirmed yet. End the process anyway, or call again.
  //   kFailedPrecondition  a tensor is not pushed in the last step, so the other workers wait for
  //                      it until this process ends. Names it.
  //   others             as for PushHandle::Wait.
  // clang-format on
  virtual absl::Status Leave(Deadline deadline) = 0;
};

}  // namespace pushpull
