// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/sync_bench.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"

#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/bench/control_socket.h"
#include "runtime/bench/job_process.h"
#include "runtime/bench/option_range.h"
#include "runtime/bench/raw_link.h"
#include "runtime/bench/sync_worker.h"
#include "runtime/bench/tensor_mix.h"
#include "runtime/metrics/http_exposer.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/channel_choice.h"
#include "runtime/transport/hello.h"

namespace pushpull {
namespace {

constexpr Duration kJobStartTimeout = std::chrono::seconds(180);
constexpr Duration kJobStepTimeout = std::chrono::seconds(180);
constexpr Duration kJobEndTimeout = std::chrono::seconds(60);

constexpr uint32_t kRoundsMax = 8;
constexpr uint32_t kWarmUpSteps = 3;
constexpr uint32_t kMembersMax = 64;
constexpr uint64_t kBytesMax = 16'000'000'000;

// A burst is as long as one step of 2 workers, but long enough to be measured.
constexpr uint64_t kBurstBytesMin = 16'000'000;
constexpr uint64_t kBurstBytesMax = 640'000'000;

// Gradients up to this are compared with a round trip.
constexpr uint64_t kRoundTripBytesMax = 64 * 1024;

std::string ManifestOf(const SyncOptions& options,
                       const std::string& program,
                       const std::string& control) {
  // Nothing is restarted: a step with a restarted member would not be comparable with the others.
  return absl::StrFormat(R"(apiVersion: pushpull.dev/v1alpha1
kind: TrainingJob
metadata: {name: bench}
spec:
  command: ["%s", "bench", "sync-worker", "--control", "%s", "--bytes", "%d", "--tensors", "%s"%s]
  servers: {replicas: %d}
  workers: {replicas: %d}
  sync: {deterministic: %s}
  restart: {backoffLimit: 0}
)",
                         program,
                         control,
                         options.bytes,
                         options.tensors,
                         options.is_registered ? ", \"--registered\"" : "",
                         options.servers,
                         options.workers,
                         options.is_deterministic ? "true" : "false");
}

std::map<std::string, std::string> EnvironmentOf(const SyncOptions& options,
                                                 std::map<std::string, std::string> environment) {
  environment[kChannelVariable] = options.channel == "shm" ? "auto" : options.channel;
  environment[kPayloadChecksumVariable] = options.has_payload_checksum ? "on" : "off";
  if (!options.has_tls) environment.erase(kTlsFolderVariable);
  return environment;
}

// CPU time of all threads of another process, in seconds; 0 if it has ended.
double CpuSecondsOf(pid_t pid) {
  clockid_t clock = 0;
  if (clock_getcpuclockid(pid, &clock) != 0) return 0;
  return static_cast<double>(NanosecondsOf(clock)) * 1e-9;
}

class SyncBench {
 public:
  SyncBench(const SyncOptions& options, JobProcess& job, const std::atomic<bool>& is_stopped)
      : options_(options), job_(job), is_stopped_(is_stopped) {}

  absl::StatusOr<SyncMeasurements> Run(ControlListener& listener) {
    PUSHPULL_RETURN_IF_ERROR(AwaitWorkers(listener));
    PUSHPULL_ASSIGN_OR_RETURN(members_, job_.Members());
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<uint64_t> tensors,
                              MakeTensors(options_.tensors, options_.bytes));
    measured_.chunks = CountChunks(tensors);
    RawLink link;
    PUSHPULL_RETURN_IF_ERROR(Steps(kWarmUpSteps));
    measured_.steps.clear();

    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t before, WireBytes());
    const uint32_t rounds = std::min(options_.steps, kRoundsMax);
    for (uint32_t round = 0; round < rounds; ++round) {
      PUSHPULL_RETURN_IF_ERROR(MeasureReferences(link));
      // The same number in each round, and in all the requested number.
      const uint32_t from = options_.steps * round / rounds;
      const uint32_t to = options_.steps * (round + 1) / rounds;
      PUSHPULL_RETURN_IF_ERROR(Steps(to - from));
    }
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t after, WireBytes());
    measured_.wire_bytes = after - before;
    PUSHPULL_RETURN_IF_ERROR(TellAll({OrderKind::kLeave, 0}));
    PUSHPULL_RETURN_IF_ERROR(job_.WaitForEnd(Deadline::After(kJobEndTimeout)));
    return std::move(measured_);
  }

 private:
  absl::Status AwaitWorkers(ControlListener& listener) {
    const Deadline deadline = Deadline::After(kJobStartTimeout);
    while (workers_.size() < options_.workers) {
      PUSHPULL_ASSIGN_OR_RETURN(ControlSocket worker, listener.Accept(deadline));
      workers_.push_back(std::move(worker));
    }
    for (ControlSocket& worker : workers_)
      PUSHPULL_RETURN_IF_ERROR(worker.Receive<WorkerReady>(deadline).status());
    return absl::OkStatus();
  }

  absl::Status TellAll(const Order& order) {
    for (ControlSocket& worker : workers_)
      PUSHPULL_RETURN_IF_ERROR(worker.Send(order, Deadline::After(kJobStepTimeout)));
    return absl::OkStatus();
  }

  absl::Status MeasureReferences(RawLink& link) {
    const uint64_t bytes = std::clamp(4 * options_.bytes, kBurstBytesMin, kBurstBytesMax);
    PUSHPULL_ASSIGN_OR_RETURN(const LinkBurst burst, link.Measure(bytes));
    measured_.bursts.push_back(burst);
    if (!ComparesRoundTrips()) return absl::OkStatus();
    const size_t count = std::max<size_t>(1, options_.steps / kRoundsMax);
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                              MeasureRoundTrips(options_.bytes, count));
    measured_.round_trips.insert(measured_.round_trips.end(), seconds.begin(), seconds.end());
    return absl::OkStatus();
  }

  bool ComparesRoundTrips() const {
    return options_.workers == 1 && options_.servers == 1 && options_.bytes <= kRoundTripBytesMax;
  }

  // One at a time, so that no worker checks sums while another is still waiting for its own.
  absl::Status Steps(uint32_t count) {
    const uint32_t at_a_time = options_.workers == 1 ? count : 1;
    for (uint32_t done = 0; done < count; done += at_a_time) {
      if (is_stopped_) return absl::CancelledError("stopped by a signal");
      PUSHPULL_RETURN_IF_ERROR(StepTogether(at_a_time));
    }
    return absl::OkStatus();
  }

  absl::Status StepTogether(uint32_t count) {
    const double before = RolesCpuSeconds();
    PUSHPULL_RETURN_IF_ERROR(TellAll({OrderKind::kSteps, count}));
    std::vector<std::vector<StepTimes>> times(workers_.size(), std::vector<StepTimes>(count));
    for (size_t i = 0; i < workers_.size(); ++i) {
      PUSHPULL_RETURN_IF_ERROR(
          workers_[i].Receive(std::span<StepTimes>(times[i]), Deadline::After(kJobStepTimeout)));
    }
    const double of_roles = (RolesCpuSeconds() - before) / count;
    for (uint32_t step = 0; step < count; ++step) Count(times, step, of_roles);
    return CheckSums();
  }

  void Count(const std::vector<std::vector<StepTimes>>& times, uint32_t step, double of_roles) {
    StepMeasurement one{.cpu_seconds = of_roles};
    int64_t begin = std::numeric_limits<int64_t>::max();
    int64_t end = std::numeric_limits<int64_t>::min();
    for (const std::vector<StepTimes>& of_worker : times) {
      begin = std::min(begin, of_worker[step].begin);
      end = std::max(end, of_worker[step].end);
      one.cpu_seconds += static_cast<double>(of_worker[step].cpu) * 1e-9;
    }
    one.seconds = static_cast<double>(end - begin) * 1e-9;
    measured_.steps.push_back(one);
  }

  absl::Status CheckSums() {
    PUSHPULL_RETURN_IF_ERROR(TellAll({OrderKind::kCheck, 0}));
    bool is_right = true;
    for (ControlSocket& worker : workers_) {
      PUSHPULL_ASSIGN_OR_RETURN(const Verdict verdict,
                                worker.Receive<Verdict>(Deadline::After(kJobStepTimeout)));
      is_right = is_right && verdict.is_right != 0;
    }
    measured_.is_verified = is_right;
    return absl::OkStatus();
  }

  // CPU time of servers and coordinator; workers report their own.
  double RolesCpuSeconds() const {
    double seconds = 0;
    for (const Endpoint& member : members_) {
      if (member.role != "worker") seconds += CpuSecondsOf(static_cast<pid_t>(member.pid));
    }
    return seconds;
  }

  // Tensor bytes that the servers have received and sent over the measured channel.
  absl::StatusOr<uint64_t> WireBytes() const {
    double bytes = 0;
    for (const Endpoint& member : members_) {
      if (member.role != "server") continue;
      PUSHPULL_ASSIGN_OR_RETURN(const std::string text, FetchMetrics(member.metrics));
      for (const char* series : {"pushpull_push_bytes_total", "pushpull_pull_bytes_total"})
        bytes += SeriesValue(text, absl::StrCat(series, "{channel=\"", options_.channel, "\"}"));
    }
    return static_cast<uint64_t>(bytes);
  }

  const SyncOptions options_;
  JobProcess& job_;
  const std::atomic<bool>& is_stopped_;
  std::vector<ControlSocket> workers_;
  std::vector<Endpoint> members_;
  SyncMeasurements measured_;
};

// Detects that a peer could not use the channel and fell back to another.
absl::Status CheckUsedChannel(const SyncOptions& options, const SyncMeasurements& measured) {
  const uint64_t expected = 2 * options.bytes * options.workers * options.steps;
  if (measured.wire_bytes == expected) return absl::OkStatus();
  constexpr absl::string_view kText =
      "the servers have counted $0 bytes over the channel $1, expected $2: the job has used "
      "another "
      "one";
  return absl::FailedPreconditionError(
      absl::Substitute(kText, measured.wire_bytes, options.channel, expected));
}

}  // namespace

absl::Status Validate(const SyncOptions& options,
                      const std::map<std::string, std::string>& environment) {
  PUSHPULL_RETURN_IF_ERROR(CheckBetween("workers", options.workers, 1, kMembersMax));
  PUSHPULL_RETURN_IF_ERROR(CheckBetween("servers", options.servers, 1, kMembersMax));
  PUSHPULL_RETURN_IF_ERROR(CheckBetween("steps", options.steps, 1, 1'000'000));
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (options.bytes > kBytesMax)
    return wrong("--bytes: must be at most ", kBytesMax, ", is ", options.bytes);
  const absl::Status tensors = MakeTensors(options.tensors, options.bytes).status();
  if (!tensors.ok()) return wrong("--", tensors.message());
  if (options.channel != "tcp" && options.channel != "shm" && options.channel != "grpc")
    return wrong("--channel: must be tcp, shm or grpc, is \"", options.channel, "\"");
  if (options.is_registered && options.channel != "shm")
    return wrong("--registered: needs --channel shm, is \"", options.channel, "\"");
  if (!options.has_tls) return absl::OkStatus();
  if (VariableOf(environment, kTlsFolderVariable).empty()) {
    return wrong(
        "--tls: set ", kTlsFolderVariable, " to a folder with ca.crt, tls.crt and tls.key");
  }
  if (options.has_payload_checksum)
    return wrong("--payload-checksum: must be off with --tls, which checks the bytes itself");
  return absl::OkStatus();
}

absl::StatusOr<SyncMeasurements> RunSyncBench(const SyncOptions& options,
                                              const std::string& program,
                                              const std::map<std::string, std::string>& environment,
                                              const std::atomic<bool>& is_stopped) {
  PUSHPULL_ASSIGN_OR_RETURN(const BenchFolder folder, BenchFolder::Make(environment));
  const std::string control = folder.path() + "/control";
  PUSHPULL_ASSIGN_OR_RETURN(ControlListener listener, ControlListener::Listen(control));
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<JobProcess> job,
                            JobProcess::Start(folder,
                                              program,
                                              ManifestOf(options, program, control),
                                              EnvironmentOf(options, environment)));
  absl::StatusOr<SyncMeasurements> measured = SyncBench(options, *job, is_stopped).Run(listener);
  if (absl::IsCancelled(measured.status())) return measured;
  if (!measured.ok()) return job->Explain(measured.status());
  PUSHPULL_RETURN_IF_ERROR(CheckUsedChannel(options, *measured));
  return measured;
}

}  // namespace pushpull
