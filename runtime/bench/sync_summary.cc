// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/sync_summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pushpull {
namespace {

constexpr double kGigabyte = 1e9;

template <typename Item, typename Field>
std::vector<double> Column(const std::vector<Item>& items, Field field) {
  std::vector<double> values;
  values.reserve(items.size());
  for (const Item& item : items) values.push_back(item.*field);
  return values;
}

double Over(double a, double b) {
  return b == 0 ? 0 : a / b;
}

}  // namespace

double QuantileOf(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

SyncSummary Summarize(const SyncOptions& options, const SyncMeasurements& measured) {
  SyncSummary summary;
  const std::vector<double> seconds = Column(measured.steps, &StepMeasurement::seconds);
  summary.p50_seconds = QuantileOf(seconds, 0.5);
  summary.p99_seconds = QuantileOf(seconds, 0.99);
  std::vector<double> distances;
  distances.reserve(seconds.size());
  for (const double one : seconds) distances.push_back(std::abs(one - summary.p50_seconds));
  summary.mad_seconds = QuantileOf(distances, 0.5);

  const auto bytes = static_cast<double>(options.bytes);
  const auto workers = static_cast<double>(options.workers);
  summary.goodput_bytes_per_second = Over(bytes, summary.p50_seconds);
  summary.wire_bytes_per_step =
      Over(static_cast<double>(measured.wire_bytes), static_cast<double>(seconds.size()));
  // A gradient goes to the servers and a sum comes back.
  summary.messages_per_second =
      Over(2 * workers * static_cast<double>(measured.chunks), summary.p50_seconds);

  summary.link_bytes_per_second =
      QuantileOf(Column(measured.bursts, &LinkBurst::bytes_per_second), 0.5);
  summary.link_cpu_seconds_per_gigabyte =
      QuantileOf(Column(measured.bursts, &LinkBurst::cpu_seconds_per_gigabyte), 0.5);
  summary.wire_over_link =
      Over(Over(summary.wire_bytes_per_step, summary.p50_seconds), summary.link_bytes_per_second);
  // Bytes in shared memory are on no wire.
  const double counted = options.channel == "shm" ? workers * bytes : summary.wire_bytes_per_step;
  summary.cpu_seconds_per_gigabyte = Over(
      QuantileOf(Column(measured.steps, &StepMeasurement::cpu_seconds), 0.5), counted / kGigabyte);
  summary.cpu_over_link =
      Over(summary.cpu_seconds_per_gigabyte, summary.link_cpu_seconds_per_gigabyte);
  summary.round_trip_seconds = QuantileOf(measured.round_trips, 0.5);
  summary.step_cpu_seconds = Column(measured.steps, &StepMeasurement::cpu_seconds);
  return summary;
}

}  // namespace pushpull
