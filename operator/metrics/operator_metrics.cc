// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/operator_metrics.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include <prometheus/counter.h>
#include <prometheus/gauge.h>

namespace pushpull_operator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using pushpull::Histogram;

// From an idle job to a reconcile that waits for a silent coordinator and API server.
const std::vector<double> kReconcileSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
const std::vector<double> kCpuSeconds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1};

constexpr std::array<const char*, 7> kPhases = {
    "Pending", "Starting", "Running", "Scaling", "Suspended", "Succeeded", "Failed"};
// Other reasons become kOtherReason, which bounds the number of series.
constexpr std::array<absl::string_view, 5> kRestartReasons = {
    "Error", "OOMKilled", "Evicted", "Preempted", "NodeLost"};
constexpr char kOtherReason[] = "Other";

}  // namespace

struct OperatorMetrics::Families {
  explicit Families(pushpull::MetricsRegistry& all) : registry(all) {
    for (const char* phase : kPhases) jobs.Add({{"phase", phase}});
    for (const absl::string_view reason : kRestartReasons)
      restarts.Add({{"reason", std::string(reason)}});
    restarts.Add({{"reason", kOtherReason}});
  }

  template <typename T>
  Family<T>& Make(prometheus::detail::Builder<T> builder, const char* name, const char* help) {
    return builder.Name(name).Help(help).Register(registry.registry());
  }
  Gauge& MakeGauge(const char* name, const char* help) {
    return Make(prometheus::BuildGauge(), name, help).Add({});
  }

  pushpull::MetricsRegistry& registry;
  Family<Gauge>& jobs =
      Make(prometheus::BuildGauge(), "pushpull_operator_jobs", "TrainingJobs by phase");
  Family<Counter>& restarts = Make(
      prometheus::BuildCounter(), "pushpull_operator_restarts_total", "Member restarts by reason");
  Family<Counter>& requests =
      Make(prometheus::BuildCounter(),
           "pushpull_operator_api_requests_total",
           "Requests to the API server by verb and status code; 0: no answer");
  Gauge& scaling_blocked = MakeGauge("pushpull_operator_scaling_blocked",
                                     "TrainingJobs whose resize exceeds its timeout");
  Gauge& queue_depth =
      MakeGauge("pushpull_operator_queue_depth", "TrainingJobs queued for a worker");
  Gauge& leader = MakeGauge("pushpull_operator_leader", "1 while this process is the leader");
  Counter& conflicts = Make(prometheus::BuildCounter(),
                            "pushpull_operator_conflicts_total",
                            "Writes rejected because the object had changed")
                           .Add({});
  Counter& reconcile_errors = Make(prometheus::BuildCounter(),
                                   "pushpull_operator_reconcile_errors_total",
                                   "Reconciles that failed")
                                  .Add({{"controller", "job"}});
  Histogram& reconcile_seconds = registry
                                     .AddHistogram("pushpull_operator_reconcile_seconds",
                                                   "Duration of a reconcile, with all calls",
                                                   kReconcileSeconds)
                                     .Add({{"controller", "job"}});
  Histogram& reconcile_cpu_seconds =
      registry
          .AddHistogram(
              "pushpull_operator_reconcile_cpu_seconds", "CPU time of a reconcile", kCpuSeconds)
          .Add({{"controller", "job"}});
};

OperatorMetrics::OperatorMetrics(pushpull::MetricsRegistry& registry)
    : families_(std::make_unique<Families>(registry)) {}
OperatorMetrics::~OperatorMetrics() = default;

void OperatorMetrics::Update(const OperatorGauges& gauges) {
  for (const char* phase : kPhases) {
    const auto found = gauges.jobs.find(phase);
    families_->jobs.Add({{"phase", phase}}).Set(found == gauges.jobs.end() ? 0 : found->second);
  }
  families_->scaling_blocked.Set(gauges.scaling_blocked);
  families_->queue_depth.Set(static_cast<double>(gauges.queue_depth));
  families_->leader.Set(gauges.is_leader ? 1 : 0);
}

void OperatorMetrics::ObserveReconcile(pushpull::Duration took, pushpull::Duration computed) {
  families_->reconcile_seconds.Observe(pushpull::ToSeconds(took));
  families_->reconcile_cpu_seconds.Observe(pushpull::ToSeconds(computed));
}

void OperatorMetrics::CountReconcileError() {
  families_->reconcile_errors.Increment();
}

void OperatorMetrics::CountConflict() {
  families_->conflicts.Increment();
}

void OperatorMetrics::CountRestart(absl::string_view reason) {
  const bool is_known = std::ranges::count(kRestartReasons, reason) > 0;
  families_->restarts.Add({{"reason", is_known ? std::string(reason) : kOtherReason}}).Increment();
}

void OperatorMetrics::CountRequest(absl::string_view verb, int code) {
  families_->requests.Add({{"verb", std::string(verb)}, {"code", absl::StrCat(code)}}).Increment();
}

}  // namespace pushpull_operator
