// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/coordinator_metrics.h"

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include <prometheus/counter.h>
#include <prometheus/gauge.h>

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

// Gauges of members, which join and leave.
class GaugesByMember {
 public:
  using Labels = std::map<std::string, std::string>;

  explicit GaugesByMember(prometheus::Family<prometheus::Gauge>& family) : family_(family) {}

  // Replaces all values; gauges of other members are removed.
  void Set(const std::map<Labels, double>& values) {
    std::erase_if(gauges_, [&](const auto& gauge) {
      if (values.contains(gauge.first)) return false;
      family_.Remove(gauge.second);
      return true;
    });
    for (const auto& [labels, value] : values) {
      prometheus::Gauge*& gauge = gauges_[labels];
      if (gauge == nullptr) gauge = &family_.Add(labels);
      gauge->Set(value);
    }
  }

 private:
  prometheus::Family<prometheus::Gauge>& family_;
  std::map<Labels, prometheus::Gauge*> gauges_;
};

void SetMembers(const JobStatus& status,
                GaugesByMember& culprits,
                GaugesByMember& stall_missing,
                GaugesByMember& lateness,
                GaugesByMember& server_seconds) {
  std::map<GaugesByMember::Labels, double> named;
  std::map<GaugesByMember::Labels, double> missing;
  std::map<GaugesByMember::Labels, double> late;
  std::map<GaugesByMember::Labels, double> inside;
  for (const WorkerStatus& worker : status.workers) {
    if (!worker.is_alive) continue;
    const std::string index = std::to_string(worker.worker.value());
    missing[{{"worker", index}}] = 0;
    late[{{"worker", index}}] = worker.lateness_seconds;
    named[{{"kind", "worker"}, {"member", ToString(worker.worker)}}] = 0;
  }
  for (const ServerStatus& server : status.servers) {
    inside[{{"server", std::to_string(server.server.value())}}] = server.step_seconds;
    named[{{"kind", "server"}, {"member", ToString(server.server)}}] = 0;
  }
  if (status.stall) {
    for (const WorkerId worker : status.stall->missing)
      missing[{{"worker", std::to_string(worker.value())}}] = 1;
  }
  for (const Culprit& culprit : status.culprits) {
    named[{{"kind", std::string(NameOf(culprit.kind))}, {"member", MemberOf(culprit)}}] =
        culprit.share;
  }
  culprits.Set(named);
  stall_missing.Set(missing);
  lateness.Set(late);
  server_seconds.Set(inside);
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
  prometheus::Gauge& epoch =
      Gauge(all, "pushpull_epoch", "Counter of the highest edition of a shard's entry in force");
  prometheus::Gauge& shards_moving =
      Gauge(all, "pushpull_shards_moving", "Shards on their way between servers");
  prometheus::Gauge& stalled =
      Gauge(all, "pushpull_stalled", "1 while a step waits for workers for too long");
  GaugesByMember stall_missing{GaugeFamily(
      all, "pushpull_stall_missing", "1 for each worker that a stalled step waits for")};
  GaugesByMember culprits{GaugeFamily(
      all, "pushpull_culprit", "Share of a step for which this member holds the others up")};
  GaugesByMember lateness{
      GaugeFamily(all,
                  "pushpull_worker_lateness_seconds",
                  "Of each step by which this worker's own part is longer than the others'")};
  GaugesByMember server_seconds{
      GaugeFamily(all,
                  "pushpull_server_step_seconds",
                  "Of each step with a gradient in this server: its queue, sum and optimizer")};
  prometheus::Gauge& step = Gauge(all, "pushpull_step", "Steps the furthest worker has finished");
  prometheus::Gauge& noise_scale =
      Gauge(all,
            "pushpull_gradient_noise_scale",
            "Simple noise scale of gradients in samples; 0: not known");
  prometheus::Gauge& checkpoint_step =
      Gauge(all, "pushpull_checkpoint_step", "Step of the last complete checkpoint");
  prometheus::Counter& checkpoint_failures = Counter(
      all, "pushpull_checkpoint_failures_total", "Saves of a checkpoint that were given up");
  prometheus::Counter& uneven_steps =
      Counter(all, "pushpull_uneven_steps_total", "Steps whose chunks had different contributors");
  prometheus::Counter& steps_lost = Counter(
      all, "pushpull_steps_lost_total", "Steps that were made, not saved, and are made again");
  Histogram& checkpoint_seconds = all.AddHistogram("pushpull_checkpoint_seconds",
                                                   "From the request to the complete checkpoint",
                                                   kCheckpointSeconds)
                                      .Add();
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
  SetMembers(status,
             families_->culprits,
             families_->stall_missing,
             families_->lateness,
             families_->server_seconds);
  families_->step.Set(static_cast<double>(status.step.value()));
  families_->noise_scale.Set(status.noise_scale);
  families_->checkpoint_step.Set(static_cast<double>(status.checkpoint.step.value()));
  const auto raise = [](prometheus::Counter& counter, uint64_t total) {
    counter.Increment(static_cast<double>(total) - counter.Value());
  };
  raise(families_->checkpoint_failures, status.checkpoint.failures);
  raise(families_->uneven_steps, status.uneven_steps);
  raise(families_->steps_lost, status.steps_lost);
}

void CoordinatorMetrics::ObserveCheckpoint(Duration took) {
  families_->checkpoint_seconds.Observe(ToSeconds(took));
}

}  // namespace pushpull
