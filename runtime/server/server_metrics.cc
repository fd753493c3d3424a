// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/server_metrics.h"

namespace pushpull {
namespace {

prometheus::Counter& Counter(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry()).Add({});
}

prometheus::Gauge& Gauge(MetricsRegistry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry.registry()).Add({});
}

}  // namespace

ServerMetrics::ServerMetrics(MetricsRegistry& registry)
    : pushed_(registry, "pushpull_push_bytes_total", "Gradient bytes received from workers"),
      pulled_(registry, "pushpull_pull_bytes_total", "Parameter bytes sent to workers"),
      replicated_(
          registry, "pushpull_replication_bytes_total", "Bytes sent to followers and learners"),
      in_place_(Counter(registry,
                        "pushpull_push_in_place_bytes_total",
                        "Gradient bytes added from where the workers have them")),
      duplicates_(
          Counter(registry, "pushpull_duplicates_total", "Pushes that had been counted before")),
      nonfinite_(Counter(registry,
                         "pushpull_nonfinite_gradients_total",
                         "Gradient chunks with a NaN or an infinity")),
      // 1 us to 1 s: anything below is clock noise; above, something is broken.
      queue_(registry
                 .AddHistogram("pushpull_server_queue_seconds",
                               "From the last byte of a push until the lane processes it",
                               {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1})
                 .Add()),
      // Bounded modes keep it small; without a bound it is usually the number of workers.
      staleness_(
          registry
              .AddHistogram("pushpull_staleness_steps",
                            "Versions that a gradient was behind the chunk it was applied to",
                            {0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 1024})
              .Add()),
      bytes_(Gauge(registry, "pushpull_server_bytes", "Parameter bytes owned")),
      busy_(Gauge(
          registry, "pushpull_server_busy_ratio", "Share of time the lanes were working, 0 to 1")),
      step_(Gauge(registry, "pushpull_step", "Highest version of a chunk")) {
  auto& errors = prometheus::BuildCounter()
                     .Name("pushpull_errors_total")
                     .Help("What went wrong, by reason")
                     .Register(registry.registry());
  for (const char* reason : {"bad_frame", "rejected", "refused_push", "connection_lost"})
    errors_.push_back(&errors.Add({{"reason", reason}}));
}

}  // namespace pushpull
