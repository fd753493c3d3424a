// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/coordinator_metrics.h"

#include <vector>

#include "absl/algorithm/container.h"
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

namespace pushpull {
namespace {

// From a small model on a local disk to a large one on a shared one.
const std::vector<double> kCheckpointSeconds = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

prometheus::Family<prometheus::Gauge>& GaugeFamily(MetricsRegistry& registry,
                                                   const char* name,
                                                   const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry.registry());
}

prometheus::Gauge& Gauge(MetricsRegistry& registry, const char* name, const char* help) {
  return GaugeFamily(registry, name, help).Add({});
}

prometheus::Counter& Counter(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry()).Add({});
}

}  // namespace

struct CoordinatorMetrics::Families {
  MetricsRegistry& all;
  prometheus::Family<prometheus::Gauge>& members =
      GaugeFamily(all, "pushpull_members", "Live members by role");
  prometheus::Gauge& servers = members.Add({{"role", "server"}});
  prometheus::Gauge& workers = members.Add({{"role", "worker"}});
  prometheus::Gauge& contributors =
      Gauge(all, "pushpull_contributors", "Workers that contribute to the current step");
  prometheus::Gauge& epoch = Gauge(all, "pushpull_epoch", "Counter of the highest epoch in force");
  prometheus::Gauge& shards_moving =
      Gauge(all, "pushpull_shards_moving", "Shards on their way between servers");
  prometheus::Gauge& stalled =
      Gauge(all, "pushpull_stalled", "1 while a step waits for workers for too long");
  prometheus::Gauge& step = Gauge(all, "pushpull_step", "Steps the furthest worker has finished");
  prometheus::Gauge& checkpoint_step =
      Gauge(all, "pushpull_checkpoint_step", "Step of the last complete checkpoint");
  prometheus::Counter& checkpoint_failures = Counter(
      all, "pushpull_checkpoint_failures_total", "Saves of a checkpoint that were given up");
  prometheus::Counter& uneven_steps =
      Counter(all, "pushpull_uneven_steps_total", "Steps whose chunks had different contributors");
  prometheus::Histogram& checkpoint_seconds =
      prometheus::BuildHistogram()
          .Name("pushpull_checkpoint_seconds")
          .Help("From the request to the complete checkpoint")
          .Register(all.registry())
          .Add({}, kCheckpointSeconds);
};

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry& registry)
    : families_(std::make_unique<Families>(Families{.all = registry})) {}
CoordinatorMetrics::~CoordinatorMetrics() = default;

void CoordinatorMetrics::Update(const JobStatus& status) {
  const auto count = [](const auto& members, auto condition) {
    return static_cast<double>(absl::c_count_if(members, condition));
  };
  families_->servers.Set(
      count(status.servers, [](const ServerStatus& server) { return server.is_alive; }));
  families_->workers.Set(
      count(status.workers, [](const WorkerStatus& worker) { return worker.is_alive; }));
  families_->contributors.Set(
      count(status.workers, [](const WorkerStatus& worker) { return worker.is_member; }));
  families_->epoch.Set(static_cast<double>(status.epoch.counter));
  families_->shards_moving.Set(static_cast<double>(status.shards_moving));
  families_->stalled.Set(status.stall ? 1 : 0);
  families_->step.Set(static_cast<double>(status.step.value()));
  families_->checkpoint_step.Set(static_cast<double>(status.checkpoint.step.value()));
  const auto raise = [](prometheus::Counter& counter, uint64_t total) {
    counter.Increment(static_cast<double>(total) - counter.Value());
  };
  raise(families_->checkpoint_failures, status.checkpoint.failures);
  raise(families_->uneven_steps, status.uneven_steps);
}

void CoordinatorMetrics::ObserveCheckpoint(Duration took) {
  families_->checkpoint_seconds.Observe(ToSeconds(took));
}

}  // namespace pushpull
