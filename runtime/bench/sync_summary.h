// SPDX-License-Identifier: Apache-2.0
//
// What a synchronisation benchmark has measured, and the figures that follow from it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pushpull {

struct SyncOptions {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint64_t bytes = 160'000'000;  // of one worker's gradient
  std::string tensors = "mixed";
  std::string channel = "tcp";
  uint32_t steps = 30;
  bool has_tls = false;
  bool has_payload_checksum = false;
  bool is_deterministic = false;
  bool is_registered = false;  // only with shm: gradients and sums are read in place
};

// One burst over the raw link.
struct LinkBurst {
  double bytes_per_second = 0;
  double cpu_seconds_per_gigabyte = 0;  // of both ends
};

struct StepMeasurement {
  double seconds = 0;      // from the first worker's first push to the last worker's last value
  double cpu_seconds = 0;  // of all processes of the job
};

struct SyncMeasurements {
  std::vector<StepMeasurement> steps;
  std::vector<LinkBurst> bursts;
  std::vector<double> round_trips;  // seconds, for the same bytes; empty: not measured
  uint64_t wire_bytes = 0;          // of tensors, both directions, in all steps
  uint64_t chunks = 0;              // of one worker's gradient
  bool is_verified = false;         // every sum of every step was right
};

struct SyncSummary {
  double p50_seconds = 0;
  double p99_seconds = 0;
  double mad_seconds = 0;  // median distance from the median
  double goodput_bytes_per_second = 0;
  double wire_bytes_per_step = 0;
  double link_bytes_per_second = 0;
  double link_cpu_seconds_per_gigabyte = 0;
  double wire_over_link = 0;
  double cpu_seconds_per_gigabyte = 0;
  double cpu_over_link = 0;
  double messages_per_second = 0;
  double round_trip_seconds = 0;         // 0: not measured
  std::vector<double> step_cpu_seconds;  // of every step, in order
};

// The quantile `q` of `values` (nearest rank); 0 if there are none.
double QuantileOf(std::vector<double> values, double q);

SyncSummary Summarize(const SyncOptions& options, const SyncMeasurements& measured);

}  // namespace pushpull
