// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include "runtime/metrics/byte_counters.h"
#include "runtime/metrics/histogram.h"

namespace pushpull {
namespace {

// 10 us to 100 s in steps of about 3: a phase of one chunk and a step over a slow link both fit.
const std::vector<double> kSyncBuckets = {
    1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1, 3, 10, 30, 100};

prometheus::Counter& Counter(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry()).Add({});
}

prometheus::Family<prometheus::Counter>& CounterFamily(MetricsRegistry& registry,
                                                       const char* name,
                                                       const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry());
}

prometheus::Gauge& Gauge(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry.registry()).Add({});
}

}  // namespace

struct WorkerMetrics::Families {
  explicit Families(MetricsRegistry& registry)
      : sync(registry
                 .AddHistogram("pushpull_sync_seconds",
                               "From the first gradient ready to the last parameter applied, one "
                               "observation a step",
                               kSyncBuckets)
                 .Add()),
        phases(registry.AddHistogram("pushpull_sync_phase_seconds",
                                     "The parts of the path of a step's last chunk",
                                     kSyncBuckets)),
        step_seconds(registry
                         .AddHistogram("pushpull_step_seconds",
                                       "A whole step, compute included",
                                       kSyncBuckets)
                         .Add()),
        steps(Counter(registry, "pushpull_steps_total", "Steps finished")),
        samples(Counter(registry, "pushpull_samples_total", "Samples whose gradient was pushed")),
        step(Gauge(
            registry, "pushpull_step", "Steps finished, those before this worker joined included")),
        loss(Gauge(registry, "pushpull_loss", "As reported by the worker's program")),
        resends(Counter(registry, "pushpull_resends_total", "Requests sent again")),
        chunk_pushes(CounterFamily(registry,
                                   "pushpull_chunk_pushes_total",
                                   "Gradients of chunks, each by itself or in a group's sum")),
        alone_pushes(chunk_pushes.Add({{"kind", "alone"}})),
        joint_pushes(chunk_pushes.Add({{"kind", "joint"}})),
        overflows(Counter(registry,
                          "pushpull_codec_overflows_total",
                          "Finite values of gradients that a codec has no finite number for")),
        link_bytes(CounterFamily(registry,
                                 "pushpull_link_bytes_total",
                                 "Gradients and values of steps between worker and server")),
        link_seconds(CounterFamily(
            registry, "pushpull_link_seconds_total", "With a gradient or a value on its way")),
        link_server_seconds(CounterFamily(registry,
                                          "pushpull_link_server_seconds_total",
                                          "With a gradient in the server: queue, sum, optimizer")),
        pushed(registry, "pushpull_push_bytes_total", "Gradient bytes sent to servers"),
        pulled(registry, "pushpull_pull_bytes_total", "Parameter bytes received from servers") {
    for (size_t i = 0; i < kSyncPhaseCount; ++i) {
      phase[i] = &phases.Add({{"phase", std::string(kSyncPhaseNames[i])}});
    }
  }

  Histogram& sync;
  HistogramFamily& phases;
  std::array<Histogram*, kSyncPhaseCount> phase{};
  Histogram& step_seconds;
  prometheus::Counter& steps;
  prometheus::Counter& samples;
  prometheus::Gauge& step;
  prometheus::Gauge& loss;
  prometheus::Counter& resends;
  prometheus::Family<prometheus::Counter>& chunk_pushes;
  prometheus::Counter& alone_pushes;
  prometheus::Counter& joint_pushes;
  prometheus::Counter& overflows;
  prometheus::Family<prometheus::Counter>& link_bytes;
  prometheus::Family<prometheus::Counter>& link_seconds;
  prometheus::Family<prometheus::Counter>& link_server_seconds;
  BytesByChannel pushed;
  BytesByChannel pulled;
};

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry)
    : families_(std::make_unique<Families>(registry)) {}
WorkerMetrics::~WorkerMetrics() = default;

void WorkerMetrics::Observe(const SyncObservation& observation, std::optional<uint64_t> trace) {
  const auto observe = [&](Histogram& histogram, Duration took) {
    if (trace)
      histogram.Observe(ToSeconds(took), *trace, observation.number.value());
    else
      histogram.Observe(ToSeconds(took));
  };
  observe(families_->sync, observation.sync);
  for (size_t i = 0; i < kSyncPhaseCount; ++i) observe(*families_->phase[i], observation.phases[i]);
  if (observation.step) observe(families_->step_seconds, *observation.step);
  families_->steps.Increment();
}

void WorkerMetrics::AddPushed(absl::string_view channel, uint64_t bytes) {
  families_->pushed.Add(channel, bytes);
}
void WorkerMetrics::AddPulled(absl::string_view channel, uint64_t bytes) {
  families_->pulled.Add(channel, bytes);
}
void WorkerMetrics::AddResend() {
  families_->resends.Increment();
}
void WorkerMetrics::AddChunkPush(bool is_joint) {
  (is_joint ? families_->joint_pushes : families_->alone_pushes).Increment();
}
void WorkerMetrics::AddOverflows(uint64_t values) {
  families_->overflows.Increment(static_cast<double>(values));
}
void WorkerMetrics::AddSamples(uint64_t samples) {
  families_->samples.Increment(static_cast<double>(samples));
}
void WorkerMetrics::SetStep(uint64_t step) {
  families_->step.Set(static_cast<double>(step));
}
void WorkerMetrics::SetLinks(const std::vector<LinkCosts>& links) {
  const auto raise = [](prometheus::Counter& counter, double total) {
    counter.Increment(std::max(0.0, total - counter.Value()));
  };
  for (const LinkCosts& link : links) {
    const std::map<std::string, std::string> server = {
        {"server", std::to_string(link.server.value())}};
    raise(families_->link_bytes.Add(server), static_cast<double>(link.bytes));
    raise(families_->link_seconds.Add(server), link.link_seconds);
    raise(families_->link_server_seconds.Add(server), link.server_seconds);
  }
}
void WorkerMetrics::SetLoss(double loss) {
  families_->loss.Set(loss);
}

}  // namespace pushpull
