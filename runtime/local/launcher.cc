// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/launcher.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/environment.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/mutex.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/time_source.h"
#include "runtime/job/checkpoint_place.h"
#include "runtime/job/local_rules.h"
#include "runtime/local/gpus.h"
#include "runtime/local/guardian.h"
#include "runtime/local/rack_network.h"
#include "runtime/local/rack_places.h"
#include "runtime/local/supervisor.h"
#include "runtime/local/workdir.h"

namespace pushpull {
namespace {

constexpr Duration kLook = std::chrono::seconds(60);

int Complain(const absl::Status& why, int exit_code) {
  std::fprintf(stderr, "pushpull: %s\n", std::string(why.message()).c_str());
  return exit_code;
}

// Passes the supervisor's exit code from the loop's thread to the main thread.
class ExitCode {
 public:
  void Set(int code) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    code_ = code;
    changed_.NotifyAll();
  }
  // The job's own deadlines bound this wait.
  int Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!code_) changed_.WaitUntil(mu_, Deadline::After(kLook));
    return *code_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<int> code_ ABSL_GUARDED_BY(mu_);
};

// Where members run; none: all on this host. kInvalidArgument: not all of them have a place.
absl::StatusOr<std::optional<RackPlaces>> FindPlaces(const LaunchOptions& options,
                                                     const TrainingJob& job) {
  if (!options.topology) {
    if (!job.spec.workers.topology_key.empty()) {
      std::fprintf(stderr,
                   "pushpull: spec.workers.topologyKey: is ignored, without --topology all members "
                   "are on this host\n");
    }
    return std::optional<RackPlaces>();
  }
  PUSHPULL_ASSIGN_OR_RETURN(RackPlaces places,
                            PlacesIn(*options.topology, static_cast<unsigned>(getpid())));
  PUSHPULL_RETURN_IF_ERROR(CheckPlaces(places, job.spec));
  return std::optional<RackPlaces>(std::move(places));
}

// Null if all members are on this host.
absl::StatusOr<std::unique_ptr<const RackNetwork>> MakeNetwork(
    const std::optional<RackPlaces>& places) {
  if (!places) return std::unique_ptr<const RackNetwork>();
  return RackNetwork::Make(*places);
}

// Null if the folder is empty.
absl::StatusOr<std::unique_ptr<TensorBoardLog>> OpenTensorBoard(const std::string& folder) {
  if (folder.empty()) return std::unique_ptr<TensorBoardLog>();
  PUSHPULL_ASSIGN_OR_RETURN(TensorBoardLog log, TensorBoardLog::Open(folder, UnixSeconds()));
  return std::make_unique<TensorBoardLog>(std::move(log));
}

}  // namespace

int LaunchJob(const LaunchOptions& given, const TrainingJob& job) {
  LaunchOptions options = given;
  // Prefix of this launcher's shared memory; another launcher of the same job has another process
  // id.
  const std::string shm_prefix = absl::StrCat("pushpull-", job.metadata.name, "-", getpid(), "-");
  options.environment["PUSHPULL_SHM_PREFIX"] = shm_prefix;
  options.gpus = VisibleGpus(options.environment);
  const int num_gpus = static_cast<int>(options.gpus.size());
  const std::vector<ManifestProblem> problems = LocalProblems(job, num_gpus);
  for (const ManifestProblem& problem : problems) {
    std::fprintf(stderr, "%s: %s\n", options.manifest_path.c_str(), ToString(problem).c_str());
  }
  if (!problems.empty()) return kExitUsage;
  absl::StatusOr<std::optional<RackPlaces>> places = FindPlaces(options, job);
  if (!places.ok()) return Complain(places.status(), kExitUsage);
  for (const std::string& line : LocallyIgnoredFields(job, num_gpus))
    std::fprintf(stderr, "pushpull: %s\n", line.c_str());

  absl::StatusOr<Workdir> workdir = Workdir::Open(options.workdir);
  if (!workdir.ok()) return Complain(workdir.status(), kExitNotReachable);
  if (job.spec.checkpoint) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(workdir->path(), error).string();
    // LocalProblems has checked it.
    options.checkpoints = CheckpointRoot(*job.spec.checkpoint, path).value_or("");
    std::fprintf(stderr,
                 "pushpull: checkpoints: %s\n",
                 JobCheckpoints(options.checkpoints, job.metadata).c_str());
  }
  const absl::StatusOr<std::unique_ptr<TlsFolder>> tls =
      OpenTlsFolder(VariableOf(options.environment, kTlsFolderVariable), Log("pushpull"));
  if (!tls.ok()) {
    const bool is_wrong = absl::IsInvalidArgument(tls.status());
    return Complain(tls.status(), is_wrong ? kExitUsage : kExitNotReachable);
  }
  options.tls = tls->get();
  absl::StatusOr<std::unique_ptr<Guardian>> guardian = Guardian::Start(shm_prefix);
  if (!guardian.ok()) return Complain(guardian.status(), kExitNotReachable);
  // Made after the guardian, which would otherwise keep the namespaces open.
  const absl::StatusOr<std::unique_ptr<const RackNetwork>> network = MakeNetwork(*places);
  if (!network.ok()) return Complain(network.status(), kExitNotReachable);
  options.network = network->get();
  if (*tls != nullptr) (*tls)->KeepReloading();

  const absl::StatusOr<std::unique_ptr<TensorBoardLog>> tensorboard =
      OpenTensorBoard(options.tensorboard_folder);
  if (!tensorboard.ok()) return Complain(tensorboard.status(), kExitNotReachable);
  options.tensorboard = tensorboard->get();

  EventLoop loop("pp-launcher");
  ExitCode exit_code;
  std::unique_ptr<Supervisor> supervisor;
  loop.Post([&] {
    supervisor = std::make_unique<Supervisor>(LocalJob{options, job, *workdir, **guardian, loop},
                                              [&exit_code](int code) { exit_code.Set(code); });
    supervisor->Start();
  });
  int code = 0;
  {
    const StopSignals signals(
        loop, [&supervisor](StopSignal signal) { supervisor->OnSignal(signal.number); });
    code = exit_code.Wait();
  }
  loop.Post([&supervisor] { supervisor.reset(); });
  loop.Stop();
  return code;
}

}  // namespace pushpull
