// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/server_metrics.h"

#include <array>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include "runtime/metrics/byte_counters.h"

namespace pushpull {
namespace {

constexpr std::array<const char*, 4> kErrorReasons = {
    "bad_frame", "rejected", "refused_push", "connection_lost"};
// 1 us to 1 s: below is clock noise, above something is broken.
const prometheus::Histogram::BucketBoundaries kQueueBuckets = {
    1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
// Bounded modes keep it small; without a bound it is usually the number of workers.
const prometheus::Histogram::BucketBoundaries kStalenessBuckets = {
    0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 1024};

prometheus::Counter& Counter(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry()).Add({});
}

prometheus::Gauge& Gauge(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry.registry()).Add({});
}

}  // namespace

struct ServerMetrics::Families {
  explicit Families(MetricsRegistry& registry)
      : pushed(registry, "pushpull_push_bytes_total", "Gradient bytes received from workers"),
        pulled(registry, "pushpull_pull_bytes_total", "Parameter bytes sent to workers"),
        replicated(
            registry, "pushpull_replication_bytes_total", "Bytes sent to followers and learners"),
        in_place(Counter(registry,
                         "pushpull_push_in_place_bytes_total",
                         "Gradient bytes added from where the workers have them")),
        duplicates(
            Counter(registry, "pushpull_duplicates_total", "Pushes that had been counted before")),
        nonfinite(Counter(registry,
                          "pushpull_nonfinite_gradients_total",
                          "Gradient chunks with a NaN or an infinity")),
        errors(prometheus::BuildCounter()
                   .Name("pushpull_errors_total")
                   .Help("What went wrong, by reason")
                   .Register(registry.registry())),
        queue(prometheus::BuildHistogram()
                  .Name("pushpull_server_queue_seconds")
                  .Help("From the last byte of a push until the lane processes it")
                  .Register(registry.registry())
                  .Add({}, kQueueBuckets)),
        staleness(prometheus::BuildHistogram()
                      .Name("pushpull_staleness_steps")
                      .Help("Versions that a gradient was behind the chunk it was applied to")
                      .Register(registry.registry())
                      .Add({}, kStalenessBuckets)),
        bytes(Gauge(registry, "pushpull_server_bytes", "Parameter bytes owned")),
        busy(Gauge(registry,
                   "pushpull_server_busy_ratio",
                   "Share of time the lanes were working, 0 to 1")),
        step(Gauge(registry, "pushpull_step", "Highest version of a chunk")) {
    for (size_t i = 0; i < kErrorReasons.size(); ++i)
      reasons[i] = &errors.Add({{"reason", kErrorReasons[i]}});
  }

  BytesByChannel pushed;
  BytesByChannel pulled;
  BytesByChannel replicated;
  prometheus::Counter& in_place;
  prometheus::Counter& duplicates;
  prometheus::Counter& nonfinite;
  prometheus::Family<prometheus::Counter>& errors;
  std::array<prometheus::Counter*, kErrorReasons.size()> reasons{};
  prometheus::Histogram& queue;
  prometheus::Histogram& staleness;
  prometheus::Gauge& bytes;
  prometheus::Gauge& busy;
  prometheus::Gauge& step;
};

ServerMetrics::ServerMetrics(MetricsRegistry& registry)
    : families_(std::make_unique<Families>(registry)) {}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::AddPushed(absl::string_view channel, uint64_t bytes) {
  families_->pushed.Add(channel, bytes);
}
void ServerMetrics::AddReplicated(absl::string_view channel, uint64_t bytes) {
  families_->replicated.Add(channel, bytes);
}

void ServerMetrics::AddPulled(absl::string_view channel, uint64_t bytes) {
  families_->pulled.Add(channel, bytes);
}
void ServerMetrics::AddDuplicate() {
  families_->duplicates.Increment();
}
void ServerMetrics::AddInPlace(uint64_t bytes) {
  families_->in_place.Increment(static_cast<double>(bytes));
}

void ServerMetrics::AddNonFinite() {
  families_->nonfinite.Increment();
}
void ServerMetrics::AddError(ServerError reason) {
  families_->reasons[static_cast<size_t>(reason)]->Increment();
}
void ServerMetrics::ObserveQueue(Duration waited) {
  families_->queue.Observe(ToSeconds(waited));
}
void ServerMetrics::ObserveStaleness(uint64_t steps) {
  families_->staleness.Observe(static_cast<double>(steps));
}
void ServerMetrics::SetBytesOwned(uint64_t bytes) {
  families_->bytes.Set(static_cast<double>(bytes));
}
void ServerMetrics::SetBusyRatio(double ratio) {
  families_->busy.Set(ratio);
}
void ServerMetrics::SetStep(uint64_t version) {
  families_->step.Set(static_cast<double>(version));
}

}  // namespace pushpull
