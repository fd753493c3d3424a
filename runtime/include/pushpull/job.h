// SPDX-License-Identifier: Apache-2.0
//
// The C++ API of a worker's program. One Job is one worker's membership in a training job:
//
//   absl::StatusOr<std::unique_ptr<pushpull::Job>> job = pushpull::Job::Join(options, deadline);
//   (*job)->Register({{.spec = {.name = "w", .dims = {784, 10}, .optimizer = {...}}, .value = w}},
//   deadline);
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

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/consistency/samples.h"
#include "runtime/store/tensor_spec.h"

namespace pushpull {

// What a worker must know before it can join; all of it comes from the environment that
// `pushpull run` and the operator set (interfaces.md section 4).
struct JobOptions {
  std::string job;
  WorkerId worker;
  std::string coordinator;  // host:port
  std::string metrics_listen =
      "127.0.0.1:0";  // host:port of /metrics, /livez and /readyz; port 0: a free one
  LogLevel log_level = LogLevel::kInfo;
  std::string tls_folder;  // has ca.crt, tls.crt and tls.key; empty: no TLS
  // Where servers on this host, or in this pod, are met in shared memory; empty: sockets only.
  std::string shm_folder = "/dev/shm";
  // Tensors travel in streams of gRPC, for networks that let only HTTP/2 through; the servers must
  // have it so, too. There is no shared memory then.
  bool has_grpc = false;
  // What the kernel holds of a connection, in each direction, and how much of it may still wait for
  // the link; 0: any of it. Links with more bandwidth times round trip need a larger buffer; an
  // urgent tensor waits behind what lies in it.
  int socket_buffer_bytes = 256 * 1024;
  int unsent_bytes = 64 * 1024;
  // Where steps are faster without them, as on one host, the codecs of tensors (TensorSpec::codec)
  // are left out: in every 4,096 steps 32 are for finding out. The gradients that count depend on
  // the time then, so a deterministic job does not do it.
  bool bypasses_codecs = false;
  // From Join on, as long as there is a Job, SIGTERM calls TellToEnd instead of ending the program;
  // a second one ends it at once, with 143. Where the program has a handler of its own, or ignores
  // or blocks the signal, nothing is changed.
  bool takes_sigterm = false;

  // Reads PUSHPULL_JOB, _INDEX, _COORDINATOR, _METRICS_PORT, _LOG_LEVEL, _TLS_DIR, _CHANNEL,
  // _SHM_DIR, _SOCKET_BUFFER_BYTES and _UNSENT_BYTES, and takes SIGTERM where PUSHPULL_ROLE is
  // worker. kInvalidArgument names the variable that is missing or wrong.
  static absl::StatusOr<JobOptions> FromEnvironment(
      const std::map<std::string, std::string>& environment);
};

// A tensor to register and the memory that holds its value.
struct TensorRegistration {
  TensorSpec spec;
  // float32, row-major, host byte order, as many as spec.dims say. In: the initial value, which
  // counts where this worker is the first to bring it. Out: the job's value, the same in every
  // worker.
  std::span<float> value;
  // The tensor whose priority is smallest travels first, in both directions: the order of first use
  // in the forward pass. Without one it is the place in the list that is registered, so a program
  // that lists its tensors in the order of the forward pass need not say anything.
  std::optional<uint8_t> priority;
  // Whether the program leaves the tensor's value where the library has put it: in `value`, and
  // from each PushPull on in its `out`. Such memory is this worker's copy of the value. Where a
  // server is lost and no other has what it held (always with spec.servers.replication: 0), the job
  // goes on from the workers' copies.
  //
  // true   The memory stays allocated, and nobody but the library writes to it, until a PushPull
  //        with another `out` is done, or Leave, or the job has ended. Parameters in data-parallel
  //        training are like that by themselves. A Pull elsewhere changes nothing; one into the
  //        same memory brings the copy up to date. `out` never counts while a gradient is in it.
  // false  The memory is the program's own whenever no operation is under way. This worker has no
  //        copy of the tensor; if no other has one either, and no checkpoint, a lost server ends
  //        the job.
  //
  // A program that breaks its promise is found out where two workers' copies of a version differ,
  // or where a copy changes while it is taken: the job fails and says so.
  bool keeps_value = true;
};

struct PushOptions {
  double samples = 1;        // weight of this gradient in the mean
  double learning_rate = 0;  // 0: as registered. In force for this step; the lowest worker's counts
  // What of the new value lies in memory that a server on this host shares is not copied to `out`:
  // PushHandle::Pieces says where it is, and what is in `out`. For tensors with the optimizer Sum,
  // in synchronous mode without backup workers; otherwise all of it is in `out`. What is not there
  // is no copy of last resort (TensorRegistration::keeps_value).
  bool in_place = false;
};

class PendingOperation;

// A push or pull under way. Movable; destroying it does not cancel anything. Thread-compatible.
class PushHandle {
 public:
  explicit PushHandle(std::shared_ptr<PendingOperation> pending) : pending_(std::move(pending)) {}

  // Blocks until the new version is in `out` (or, without `out`, until the push counts) or
  // `deadline` passes. Waiting again is allowed.
  //
  // kDeadlineExceeded   still under way; the text names tensor, step and the servers not heard of.
  // kUnavailable        the job has failed, e.g. a server died; the text names peer, tensor and
  // step. kInvalidArgument    a server refused the gradient (a NaN under the policy Fail). kAborted
  // this worker is no longer a member; end the process, it will be replaced. kCancelled the job has
  // ended, or this process was told to end before it had a part in the job.
  absl::Status Wait(Deadline deadline);

  // Of a push with `in_place`, after Wait has returned OK: the new value, in the order of the
  // tensor's values. To be read only, until the program begins its next push of the tensor, or
  // leaves; not by a worker that has been given up, to which that push or Wait returns kAborted.
  // The handle is kept meanwhile.
  std::vector<std::span<const float>> Pieces() const;

 private:
  std::shared_ptr<PendingOperation> pending_;
};

// What a step is depends on the job's mode; the program is the same in all, also while the mode
// changes, which may make a push wait for a moment before it begins:
//
//   Sync     Adds up the gradients of all workers. Wait returns when all have pushed the step; the
//            value that comes back has exactly the steps up to it. With backup workers
//            (spec.sync.backupWorkers) the step has the gradients of the first who have pushed
//            every tensor of it; what another pushes is dropped, and what it gets back is the
//            newest step there is, which next_step() says. Push all tensors before you wait. Gated
//            steps (spec.sync.gated) have the same gradients in every tensor, also where a worker
//            dies in one; push all tensors before you wait there, too.
//   Async    Each worker's steps are its own. Wait returns when this worker's gradient is in the
//            value; what comes back has all own steps and what others have pushed by then. The
//            learning rate of each push is its own.
//   Bounded  As Async, and what a pull or the pull half of a push brings back has every worker's
//            steps but the last `staleness` before this worker's: it waits for them. A push without
//            `out` does not wait.
//
// Thread-safe, except that the pushes of one tensor are made in the order of its steps by one
// thread.
class Job {
 public:
  virtual ~Job() = default;

  // Connects to the coordinator and becomes known to it. Blocks until `deadline`.
  //
  // kUnavailable        the coordinator cannot be reached; the text names its address.
  // kFailedPrecondition it refuses this worker (another job, an index out of range).
  // kNotFound, kPermissionDenied, kInvalidArgument  a file of options.tls_folder, which is named.
  static absl::StatusOr<std::unique_ptr<Job>> Join(const JobOptions& options, Deadline deadline);

  // The workers go through `source` together: from Register on, Samples() says which of it are this
  // worker's in its next step. Every worker does this, with the same numbers, before Register.
  // spec.workers.globalBatch, where the job has one, takes the place of `source.batch`. In a job
  // that began in the mode Async or Bounded each worker has a part of its own, one of
  // spec.workers.replicas.
  //
  // kInvalidArgument: a number is 0. kFailedPrecondition: the tensors are registered already.
  virtual absl::Status UseSamples(const SampleSource& source) = 0;

  // Registers the worker's tensors, all at once and before the first push. Blocks until every
  // worker that the job starts with has done the same and the job's values are in `value`.
  //
  // kInvalidArgument    a shape is wrong, a name is used twice or begins with "pushpull.", or
  // another
  //                     worker registered the tensor differently; the text says how.
  // kDeadlineExceeded   not all of the servers and workers are there yet.
  virtual absl::Status Register(std::span<const TensorRegistration> tensors, Deadline deadline) = 0;

  // Memory for gradients that servers on this host, or in this pod, read where it lies: one copy
  // less, and none for all but the first gradient of a step. Zeros, begins with a page, lives as
  // long as the Job. Where it cannot be shared it is memory like any other, and the log says so
  // once. For all gradients together, once: each takes a file descriptor, and until the servers
  // have it, at the first steps, gradients in it are copied.
  //
  // A push of what lies there that fails is not the end of its being read: where Wait returns an
  // error other than kDeadlineExceeded, the gradient stays as it is until the Job is gone.
  // kResourceExhausted: there is no memory, of any kind.
  virtual absl::StatusOr<std::span<float>> AllocateBuffer(size_t num_values) = 0;

  // Adds `gradient` to the tensor's current step and brings the new value back into `out`.
  //
  // gradient: float32, as many as registered; read until the handle is done, unchanged meanwhile.
  // out:      the same size, written until then; or empty, then nothing is brought back. Must not
  //           overlap `gradient`.
  // Never blocks on the network. kNotFound: no such tensor. kInvalidArgument: sizes differ.
  // kCancelled: this process was told to end, its last step is done, and it leaves by itself: end
  // it, with exit_code().
  virtual absl::StatusOr<PushHandle> PushPull(absl::string_view tensor,
                                              std::span<const float> gradient,
                                              std::span<float> out,
                                              const PushOptions& options) = 0;

  // Brings the tensor's value of version `min_version` or later into `out`.
  virtual absl::StatusOr<PushHandle> Pull(absl::string_view tensor,
                                          std::span<float> out,
                                          Step min_version) = 0;

  // This worker's samples of its next step. They change when CommitSamples is done, and must not be
  // asked for while one is under way. Never blocks.
  // kFailedPrecondition: without UseSamples and Register. kDataLoss: the job's place in its data
  // set is damaged.
  virtual absl::StatusOr<StepSamples> Samples() const = 0;

  // Says that this worker has done its samples of the step, together with the step's pushes and as
  // the last of them; when the handle is done, Samples() are those of the step after. A worker that
  // dies before has its samples handed out again.
  // kFailedPrecondition: without UseSamples.
  virtual absl::StatusOr<PushHandle> CommitSamples() = 0;

  // The job goes on without this worker, because it is smaller now (`pushpull scale`) or because
  // the process was told to end (SIGTERM): finish the step under way, Leave, and end with
  // exit_code(). Samples() says so by itself. Never blocks.
  virtual bool is_released() const = 0;

  // The process is to end: the job goes on without it at the end of the step under way, and another
  // process takes its place. For programs that handle SIGTERM themselves. From any thread, but not
  // from a signal handler; never blocks.
  virtual void TellToEnd() = 0;

  // What the program ends with when it has left, or is out of the job by an error: 0, or 143 where
  // it was told to end before its part was done, so that whoever started it starts another.
  virtual int exit_code() const = 0;

  // The first step this worker takes part in: 0, or later where it joined or replaced another.
  // Valid after Register.
  virtual Step start_step() const = 0;
  // The step of the next push, valid while none is under way: one more than the last, or later
  // where the job has gone on without this worker (backup workers).
  virtual Step next_step() const = 0;
  virtual WorkerId worker() const = 0;
  virtual uint32_t workers()
      const = 0;  // as many as the job is meant to have (spec.workers.replicas)

  // For progress, report and metrics. Never block.
  virtual void ReportLoss(Step step, double loss, uint64_t samples) = 0;
  virtual void ReportResult(absl::string_view name, double value) = 0;

  // Leaves the job in order: from the next step on nobody waits for this worker. Blocks until the
  // coordinator knows it or `deadline` passes. Nothing can be pushed afterwards. Again, or where
  // the worker leaves by itself already: waits for that.
  virtual absl::Status Leave(Deadline deadline) = 0;
};

}  // namespace pushpull
