// SPDX-License-Identifier: Apache-2.0
#include "operator/cmd/operator_process.h"

#include <atomic>

#include "absl/strings/str_cat.h"

#include "operator/controller/grpc_job_coordinator.h"
#include "operator/controller/job_controller.h"
#include "operator/kube/client.h"
#include "operator/kube/server_clock.h"
#include "operator/lease/leader_elector.h"
#include "operator/metrics/operator_metrics.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/metrics/http_exposer.h"

namespace pushpull_operator {

using pushpull::Deadline;

namespace {

// After SIGTERM: for reconciles in progress, then for releasing the lease. A standby leads within 2
// s.
constexpr std::chrono::milliseconds kDrainTime{800};
constexpr std::chrono::milliseconds kReleaseTime{1000};
// At most this share of the requests that the rate limit allows looks up Secrets.
constexpr double kSecretShare = 0.2;

class OperatorProcess {
 public:
  OperatorProcess(const OperatorStart& start, Credentials& credentials)
      : config_(start.config),
        log_("operator", start.config.log_level),
        metrics_(registry_),
        lease_client_(credentials, time_, LeaseClientOptions()),
        elector_(lease_client_, time_, ElectorOptions(start)),
        client_(credentials, time_, ClientOptionsOf()),
        controller_(client_, time_, coordinators_, metrics_, ControllerOptionsOf(start), log_) {}

  // OK after a stop signal.
  absl::Status Run() {
    const auto exposer = pushpull::HttpExposer::Start(
        {.listen = absl::StrCat("0.0.0.0:", config_.metrics_port),
         .metrics = [this](pushpull::MetricsFormat format) { return MetricsText(format); },
         .ready = [this] { return Ready(); }});
    if (!exposer.ok()) return exposer.status();
    pushpull::EventLoop loop("op-signals");
    const pushpull::StopSignals signals(loop, [this](pushpull::StopSignal signal) {
      signal_ = signal.number;
      stop_.Cancel();
    });
    log_.Info("started", {{"metrics", (*exposer)->address()}});
    const absl::Status led = Lead();
    if (absl::IsFailedPrecondition(led)) {
      log_.Warning("lost the lease, continues as standby", {{"why", led.message()}});
    }
    End(led);
    return absl::IsCancelled(led) ? absl::OkStatus() : led;
  }

  int signal() const { return signal_; }

 private:
  // Leader election has its own client: the controller's is guarded by the election and stops
  // first.
  ClientOptions LeaseClientOptions() {
    return {.rate_limit = config_.rate_limit,
            .on_attempt = [this](absl::string_view verb,
                                 int code) { metrics_.CountRequest(verb, code); },
            .on_date = [this](std::chrono::sys_seconds date) { clock_.Observe(date); },
            .on_skipped =
                [this](const absl::Status& why) {
                  log_.Warning("object skipped", {{"why", why.message()}});
                }};
  }

  ClientOptions ClientOptionsOf() {
    ClientOptions options = LeaseClientOptions();
    if (config_.has_election) options.may_write = [this] { return elector_.MayWrite(); };
    return options;
  }

  LeaderElectorOptions ElectorOptions(const OperatorStart& start) {
    LeaderElectorOptions options{
        .lease = config_.lease,
        .identity = start.instance,
        .times = config_.lease_times,
        .was_seen = start.lease_was_seen,
        .on_error = [this](const absl::Status& status) {
          log_.Warning("cannot read or renew the lease",
                       {{"lease", ToString(config_.lease)}, {"why", status.message()}});
        }};
    if (options.lease.object_namespace.empty())
      options.lease.object_namespace = start.access.default_namespace;
    return options;
  }

  ControllerOptions ControllerOptionsOf(const OperatorStart& start) {
    return {
        .namespaces = config_.namespaces,
        .workers = config_.workers,
        .secret_pause = std::chrono::milliseconds(
            static_cast<int64_t>(1000 / (kSecretShare * config_.rate_limit.qps))),
        .reconciler = {
            .pods = {.runtime_image = config_.runtime_image,
                     .log_level = config_.member_log_level,
                     .security_context = config_.pod_security_context,
                     .operator_namespace = start.pod_namespace},
            .instance = start.instance,
            .now = [this] { return clock_.Now(); },
            .certificate_lifetime = config_.certificate_lifetime,
            .on_restart = [this](const std::string& reason) { metrics_.CountRestart(reason); }}};
  }

  void Begin() {
    log_.Info("became leader",
              {{"lease", config_.has_election ? ToString(config_.lease) : "none"}});
    controller_.Start();
    has_begun_ = true;
  }

  absl::Status Lead() {
    if (config_.has_election) return elector_.Run([this] { Begin(); }, stop_);
    Begin();
    while (time_.PauseUntil(time_.Now() + std::chrono::hours(1), stop_)) {
    }
    return absl::CancelledError("stopped");
  }

  // Without the lease there is nothing to drain and nothing to release.
  void End(const absl::Status& led) {
    controller_.Stop();
    const bool was_stopped = absl::IsCancelled(led);
    if (was_stopped && !controller_.AwaitIdle(Deadline::After(kDrainTime)).ok()) {
      log_.Info("stopped with reconciles in progress");
    }
    client_.Stop();
    if (!was_stopped || !config_.has_election) return;
    const absl::Status released = elector_.Release(Deadline(time_.Now() + kReleaseTime));
    if (!released.ok()) {
      log_.Warning("cannot release the lease, a standby waits until it expires",
                   {{"why", released.message()}});
    }
  }

  std::string MetricsText(pushpull::MetricsFormat format) {
    OperatorGauges gauges = controller_.gauges();
    gauges.is_leader = has_begun_ && (!config_.has_election || elector_.is_leader());
    metrics_.Update(gauges);
    return registry_.Text(format);
  }

  // A standby is ready if it could lead.
  absl::Status Ready() const {
    if (has_begun_) return controller_.Ready();
    return config_.has_election ? elector_.last_error() : absl::OkStatus();
  }

  const OperatorConfig config_;
  const pushpull::Log log_;
  PausingTime& time_ = SystemPausingTime();
  ServerClock clock_{time_};
  pushpull::MetricsRegistry registry_;
  OperatorMetrics metrics_;
  Cancellation stop_;
  std::atomic<int> signal_ = 0;
  std::atomic<bool> has_begun_ = false;
  KubeClient lease_client_;
  LeaderElector elector_;
  KubeClient client_;
  GrpcJobCoordinator coordinators_;
  JobController controller_;
};

}  // namespace

int RunOperator(const OperatorStart& start) {
  const auto credentials = Credentials::Create(start.access, SystemPausingTime());
  if (!credentials.ok()) return pushpull::Report(credentials.status(), kProgram);
  // After losing the lease the process starts over as a standby with a new identity, so that an
  // outage of the API server does not restart the pod.
  for (int life = 1;; ++life) {
    OperatorStart own = start;
    absl::StrAppend(&own.instance, "-", life);
    own.lease_was_seen = life > 1;
    OperatorProcess process(own, **credentials);
    const absl::Status ended = process.Run();
    if (ended.ok()) return pushpull::ExitCodeOf(process.signal());
    if (!absl::IsFailedPrecondition(ended)) return pushpull::Report(ended, kProgram);
  }
}

}  // namespace pushpull_operator
