// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/coordinator_metrics.h"

#include <algorithm>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

namespace pushpull {
namespace {

prometheus::Family<prometheus::Gauge>& Gauge(MetricsRegistry& registry,
                                             const char* name,
                                             const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry.registry());
}

}  // namespace

// From a small model on a local disk to a large one on a shared one.
const std::vector<double> kCheckpointSeconds = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

struct CoordinatorMetrics::Families {
  explicit Families(MetricsRegistry& registry)
      : members(Gauge(registry, "pushpull_members", "Live members by role")),
        servers(members.Add({{"role", "server"}})),
        workers(members.Add({{"role", "worker"}})),
        contributors(
            Gauge(registry, "pushpull_contributors", "Workers that contribute to the current step")
                .Add({})),
        epoch(Gauge(registry, "pushpull_epoch", "Counter of the highest epoch in force").Add({})),
        shards_moving(
            Gauge(registry, "pushpull_shards_moving", "Shards on their way between servers")
                .Add({})),
        stalled(Gauge(registry, "pushpull_stalled", "1 while a step waits for workers for too long")
                    .Add({})),
        step(Gauge(registry, "pushpull_step", "Steps the furthest worker has finished").Add({})),
        checkpoint_step(
            Gauge(registry, "pushpull_checkpoint_step", "Step of the last complete checkpoint")
                .Add({})),
        checkpoint_failures(prometheus::BuildCounter()
                                .Name("pushpull_checkpoint_failures_total")
                                .Help("Saves of a checkpoint that were given up")
                                .Register(registry.registry())
                                .Add({})),
        uneven_steps(prometheus::BuildCounter()
                         .Name("pushpull_uneven_steps_total")
                         .Help("Steps whose chunks had different contributors")
                         .Register(registry.registry())
                         .Add({})),
        checkpoint_seconds(prometheus::BuildHistogram()
                               .Name("pushpull_checkpoint_seconds")
                               .Help("From the request to the complete checkpoint")
                               .Register(registry.registry())
                               .Add({}, kCheckpointSeconds)) {}

  prometheus::Family<prometheus::Gauge>& members;
  prometheus::Gauge& servers;
  prometheus::Gauge& workers;
  prometheus::Gauge& contributors;
  prometheus::Gauge& epoch;
  prometheus::Gauge& shards_moving;
  prometheus::Gauge& stalled;
  prometheus::Gauge& step;
  prometheus::Gauge& checkpoint_step;
  prometheus::Counter& checkpoint_failures;
  prometheus::Counter& uneven_steps;
  prometheus::Histogram& checkpoint_seconds;
};

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry& registry)
    : families_(std::make_unique<Families>(registry)) {}
CoordinatorMetrics::~CoordinatorMetrics() = default;

void CoordinatorMetrics::Update(const JobStatus& status) {
  const auto count = [](const auto& members, auto condition) {
    return static_cast<double>(std::count_if(members.begin(), members.end(), condition));
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
