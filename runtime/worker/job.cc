// SPDX-License-Identifier: Apache-2.0
//
// A worker's Job in a real process: one thread for everything that arrives, sockets, gRPC, metrics.
#include "pushpull/job.h"

#include <pthread.h>

#include <atomic>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/termination_message.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/membership/session_client.h"
#include "runtime/metrics/http_exposer.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/tls/member_tls.h"
#include "runtime/transport/member_transport.h"
#include "runtime/transport/shm/shared_memory.h"
#include "runtime/worker/end_notice.h"
#include "runtime/worker/group_port.h"
#include "runtime/worker/worker_collectives.h"
#include "runtime/worker/worker_node.h"
#include "runtime/worker/worker_tracing.h"

namespace pushpull {
namespace {

// How long to search for a coordinator, so that the reason for a failure is known before the
// deadline passes.
Duration SearchTime(Deadline deadline) {
  return deadline.remaining() - deadline.remaining() / 10;
}

class RunningJob final : public Job {
 public:
  ~RunningJob() override {
    end_notice_.reset();
    exposer_.reset();
    // The end notice, which may be running there at this moment, may post tasks that use the node.
    loop_.Post([this] { loop_.Post([this] { node_.reset(); }); });
    loop_.Stop();
  }

  absl::Status Register(std::span<const TensorRegistration> tensors, Deadline deadline) override {
    PUSHPULL_RETURN_IF_ERROR(node_->Register(tensors)->Wait(deadline));
    is_ready_.store(true, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<float>> AllocateBuffer(size_t num_values) override {
    if (num_values == 0) return std::span<float>();
    PUSHPULL_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, Allocate(num_values));
    return std::span(reinterpret_cast<float*>(bytes.data()), num_values);
  }

  absl::StatusOr<PushHandle> PushPull(absl::string_view tensor,
                                      ConstTensorValues gradient,
                                      TensorValues out,
                                      const PushOptions& options) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->PushPull(tensor, gradient, out, options));
    return PushHandle(std::move(pending));
  }

  absl::Status EndStep() override { return node_->operations().EndStep(); }

  absl::StatusOr<PushHandle> Pull(absl::string_view tensor,
                                  TensorValues out,
                                  Step min_version) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->Pull(tensor, out, min_version));
    return PushHandle(std::move(pending));
  }

  absl::StatusOr<PushHandle> PullOptimizerState(absl::string_view tensor,
                                                std::span<float> out,
                                                Step min_version) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->PullOptimizerState(tensor, out, min_version));
    return PushHandle(std::move(pending));
  }

  absl::StatusOr<PushHandle> PushRows(absl::string_view tensor,
                                      std::span<const uint64_t> keys,
                                      std::span<const float> gradient,
                                      const PushOptions& options) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->PushRows(tensor, keys, gradient, options));
    return PushHandle(std::move(pending));
  }

  absl::StatusOr<PushHandle> PullRows(absl::string_view tensor,
                                      std::span<const uint64_t> keys,
                                      std::span<float> out,
                                      Step min_version) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->PullRows(tensor, keys, out, min_version));
    return PushHandle(std::move(pending));
  }

  absl::Status UseSamples(const SampleSource& source) override {
    return node_->operations().UseSamples(source);
  }
  absl::StatusOr<StepSamples> Samples(uint64_t ahead) const override {
    return node_->operations().Samples(ahead);
  }
  absl::StatusOr<PushHandle> CommitSamples(bool are_done) override {
    PUSHPULL_ASSIGN_OR_RETURN(auto pending, node_->CommitSamples(are_done));
    return PushHandle(std::move(pending));
  }
  ProgramState& state() override { return node_->state(); }
  Collectives& collectives() override { return *collectives_; }
  bool is_released() const override { return node_->is_released(); }
  void TellToEnd() override { node_->TellToEnd(); }
  int exit_code() const override { return node_->departure().exit_code(); }

  Step start_step() const override { return node_->start_step(); }
  Step next_step() const override { return node_->next_step(); }
  WorkerId worker() const override { return options_.worker; }
  uint32_t workers() const override { return node_->workers(); }
  void ReportLoss(Step step, double loss, uint64_t samples) override {
    node_->ReportLoss(step, loss, samples);
  }
  absl::Status ReportResult(absl::string_view name, double value) override {
    return node_->ReportResult(name, value);
  }
  Tracing& tracing() override { return *tracing_; }
  absl::Status Leave(Deadline deadline) override {
    const std::shared_ptr<PendingOperation> leave = node_->Leave();
    // Before the coordinator knows, which may die with what it knows.
    if (node_->departure().was_released()) WriteReleasedMessage(options_.termination_log);
    return leave->Wait(deadline);
  }

 private:
  friend class Job;

  RunningJob(const JobOptions& options, std::unique_ptr<MemberTls> tls, const Log& log)
      : options_(options),
        log_(log),
        metrics_(registry_),
        tls_(std::move(tls)),
        shm_(OpenShmFolder(options.has_grpc ? "" : options.shm_folder, options.job, log)),
        loop_("pp-worker"),
        transport_(MakeMemberTransport({&loop_},
                                       {.has_grpc = options.has_grpc,
                                        .buffers = {.bytes = options.socket_buffer_bytes,
                                                    .unsent_bytes_max = options.unsent_bytes},
                                        .tls = tls_->folder(),
                                        .shm = shm_.get()})),
        connector_(options.coordinator, tls_->folder()) {}

  absl::Status Start(Deadline deadline) {
    PUSHPULL_ASSIGN_OR_RETURN(exposer_,
                              HttpExposer::Start({.listen = options_.metrics_listen,
                                                  .metrics = tls_->AddTo(registry_),
                                                  .ready = [this] { return Ready(); }}));
    PUSHPULL_ASSIGN_OR_RETURN(const RingSocket ring, ListenForRing());
    PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<GroupPort> group_port, ListenForGroup());
    std::random_device random;
    const uint64_t incarnation = (uint64_t{random()} << 32) | random();
    node_ = std::make_unique<WorkerNode>(
        WorkerNodeOptions{.job = options_.job,
                          .worker = options_.worker,
                          .incarnation = Incarnation{incarnation},
                          .metrics_address = exposer_->address(),
                          .rack = options_.rack,
                          .bypasses_codecs = options_.bypasses_codecs,
                          .ring = ring.listener,
                          .ring_address = ring.address,
                          .ring_tls = tls_->folder(),
                          .ring_has_shm = !options_.has_grpc && !options_.shm_folder.empty(),
                          .group_port = std::move(group_port),
                          .node = options_.node,
                          .session = {.first_timeout = SearchTime(deadline),
                                      .jitter = std::uniform_real_distribution<>(0, 1)(random)}},
        WorkerDependencies{loop_, *transport_, connector_, metrics_},
        Log(ToString(options_.worker), options_.log_level));
    collectives_.emplace(*node_);
    tracing_.emplace(loop_, node_->trace());
    // Before anybody can see this worker and tell it to end.
    if (options_.takes_sigterm) end_notice_.emplace(loop_, [this] { node_->TellToEnd(); });
    return node_->Join()->Wait(deadline);
  }

  absl::StatusOr<std::span<std::byte>> Allocate(size_t num_values) ABSL_LOCKS_EXCLUDED(mu_) {
    if (num_values > kBufferBytesMax / sizeof(float)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a buffer of ", num_values, " values: there is no such memory"));
    }
    const size_t num_bytes = num_values * sizeof(float);
    if (shm_ != nullptr) {
      const absl::StatusOr<std::shared_ptr<SharedMemory>> shared =
          SharedMemory::Create(absl::StrCat("pushpull-", options_.job), num_bytes);
      if (shared.ok()) {
        node_->Share(*shared);
        MutexLock lock(mu_);
        shared_.push_back(*shared);
        return shared_.back()->bytes();
      }
      log_.Warning("gradients are copied to servers on this host",
                   {{"why", shared.status().message()}});
    }
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer own, HostBuffer::Zeroed(num_bytes));
    MutexLock lock(mu_);
    buffers_.push_back(std::move(own));
    return buffers_.back().bytes();
  }

  struct RingSocket {
    std::shared_ptr<RankListener> listener;  // null: the job has servers
    std::string address;
  };
  absl::StatusOr<RingSocket> ListenForRing() const {
    if (options_.ring.empty()) return RingSocket();
    PUSHPULL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options_.ring));
    PUSHPULL_ASSIGN_OR_RETURN(RankListener listener, RankListener::Listen(address));
    address.port = listener.port();
    return RingSocket{std::make_shared<RankListener>(std::move(listener)), ToString(address)};
  }

  absl::StatusOr<std::shared_ptr<GroupPort>> ListenForGroup() {
    if (options_.group.empty()) return nullptr;
    return GroupPort::Listen(*transport_, options_.job, options_.group);
  }

  absl::Status Ready() const {
    return is_ready_.load(std::memory_order_relaxed)
               ? absl::OkStatus()
               : absl::UnavailableError("tensors are not registered yet");
  }

  static constexpr size_t kBufferBytesMax = size_t{1} << 44;

  const JobOptions options_;
  const Log log_;
  // Memory handed to the program; outlives everything that reads it.
  Mutex mu_;
  std::vector<std::shared_ptr<const SharedMemory>> shared_ ABSL_GUARDED_BY(mu_);
  std::vector<HostBuffer> buffers_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> is_ready_ = false;
  MetricsRegistry registry_;
  WorkerMetrics metrics_;
  const std::unique_ptr<MemberTls> tls_;
  const std::unique_ptr<ShmFolder> shm_;
  EventLoop loop_;
  const std::unique_ptr<Transport> transport_;
  GrpcSessionConnector connector_;
  std::unique_ptr<WorkerNode> node_;  // destroyed on the loop's thread
  std::optional<WorkerCollectives> collectives_;
  std::optional<WorkerTracing> tracing_;
  std::unique_ptr<HttpExposer> exposer_;
  std::optional<EndNotice> end_notice_;
};

// A process that a worker forks is no member: it must not hold the worker's connections open, nor
// pass its signals on.
void LeaveMembershipToParent() {
  EndNotice::LeaveToParent();
  CloseDescriptorsOfParent();
}

void KeepForkedProcessesOut() {
  static const int failed = pthread_atfork(nullptr, nullptr, LeaveMembershipToParent);
  PUSHPULL_CHECK(failed == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> Job::Join(const JobOptions& options, Deadline deadline) {
  const Log log(ToString(options.worker), options.log_level);
  PUSHPULL_ASSIGN_OR_RETURN(auto tls, MemberTls::Open(options.tls_folder, log));
  KeepForkedProcessesOut();
  auto job = std::unique_ptr<RunningJob>(new RunningJob(options, std::move(tls), log));
  PUSHPULL_RETURN_IF_ERROR(job->Start(deadline));
  return job;
}

absl::Status PushHandle::Wait(Deadline deadline) {
  return pending_->Wait(deadline);
}

std::vector<std::span<const float>> PushHandle::Pieces() const {
  return pending_->Pieces();
}

uint64_t PushHandle::updates() const {
  return pending_->updates();
}

bool PushHandle::has_gradient() const {
  return pending_->has_gradient();
}

}  // namespace pushpull
