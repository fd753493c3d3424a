// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/operator_metrics.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

namespace pushpull_operator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

// From an idle job to a reconcile that waits for a silent coordinator and API server.
const std::vector<double> kReconcileSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
const std::vector<double> kCpuSeconds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1};

constexpr std::array<const char*, 7> kPhases = {
    "Pending", "Starting", "Running", "Scaling", "Suspended", "Succeeded", "Failed"};
// Other reasons become kOtherReason, which bounds the number of series.
constexpr std::array<const char*, 5> kRestartReasons = {
    "Error", "OOMKilled", "Evicted", "Preempted", "NodeLost"};
constexpr char kOtherReason[] = "Other";

prometheus::Registry& Of(pushpull::MetricsRegistry& registry) {
  return registry.registry();
}

}  // namespace

struct OperatorMetrics::Families {
  explicit Families(pushpull::MetricsRegistry& registry)
      : jobs(prometheus::BuildGauge()
                 .Name("pushpull_operator_jobs")
                 .Help("TrainingJobs by phase")
                 .Register(Of(registry))),
        restarts(prometheus::BuildCounter()
                     .Name("pushpull_operator_restarts_total")
                     .Help("Member restarts by reason")
                     .Register(Of(registry))),
        requests(prometheus::BuildCounter()
                     .Name("pushpull_operator_api_requests_total")
                     .Help("Requests to the API server by verb and status code; 0: no answer")
                     .Register(Of(registry))),
        scaling_blocked(prometheus::BuildGauge()
                            .Name("pushpull_operator_scaling_blocked")
                            .Help("TrainingJobs whose resize exceeds its timeout")
                            .Register(Of(registry))
                            .Add({})),
        queue_depth(prometheus::BuildGauge()
                        .Name("pushpull_operator_queue_depth")
                        .Help("TrainingJobs queued for a worker")
                        .Register(Of(registry))
                        .Add({})),
        leader(prometheus::BuildGauge()
                   .Name("pushpull_operator_leader")
                   .Help("1 while this process is the leader")
                   .Register(Of(registry))
                   .Add({})),
        conflicts(prometheus::BuildCounter()
                      .Name("pushpull_operator_conflicts_total")
                      .Help("Writes rejected because the object had changed")
                      .Register(Of(registry))
                      .Add({})),
        reconcile_errors(prometheus::BuildCounter()
                             .Name("pushpull_operator_reconcile_errors_total")
                             .Help("Reconciles that failed")
                             .Register(Of(registry))
                             .Add({{"controller", "job"}})),
        reconcile_seconds(prometheus::BuildHistogram()
                              .Name("pushpull_operator_reconcile_seconds")
                              .Help("Duration of a reconcile, with all calls")
                              .Register(Of(registry))
                              .Add({{"controller", "job"}}, kReconcileSeconds)),
        reconcile_cpu_seconds(prometheus::BuildHistogram()
                                  .Name("pushpull_operator_reconcile_cpu_seconds")
                                  .Help("CPU time of a reconcile")
                                  .Register(Of(registry))
                                  .Add({{"controller", "job"}}, kCpuSeconds)) {
    for (const char* phase : kPhases) jobs.Add({{"phase", phase}});
    for (const char* reason : kRestartReasons) restarts.Add({{"reason", reason}});
    restarts.Add({{"reason", kOtherReason}});
  }

  Family<Gauge>& jobs;
  Family<Counter>& restarts;
  Family<Counter>& requests;
  Gauge& scaling_blocked;
  Gauge& queue_depth;
  Gauge& leader;
  Counter& conflicts;
  Counter& reconcile_errors;
  Histogram& reconcile_seconds;
  Histogram& reconcile_cpu_seconds;
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
  const bool is_known = std::any_of(kRestartReasons.begin(),
                                    kRestartReasons.end(),
                                    [reason](const char* known) { return reason == known; });
  families_->restarts.Add({{"reason", is_known ? std::string(reason) : kOtherReason}}).Increment();
}

void OperatorMetrics::CountRequest(absl::string_view verb, int code) {
  families_->requests.Add({{"verb", std::string(verb)}, {"code", absl::StrCat(code)}}).Increment();
}

}  // namespace pushpull_operator
