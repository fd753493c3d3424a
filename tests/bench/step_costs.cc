// SPDX-License-Identifier: Apache-2.0
//
// What is too small a part of a step to be seen in its time, counted instead: the check for NaN and
// infinity a gigabyte, the squares for the noise scale likewise, what metrics cost a chunk and a
// step, and what a trace costs a chunk. As JSON, for tests/bench.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/metrics/registry.h"
#include "runtime/server/server_metrics.h"
#include "runtime/tensor/reduce.h"
#include "runtime/worker/trace_recorder.h"
#include "runtime/worker/worker_metrics.h"

namespace pushpull {
namespace {

constexpr int kRounds = 9;

double MedianOf(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of one call, the median of rounds of `calls`.
double SecondsOf(int calls, const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    rounds.push_back(passed.count() / calls);
  }
  return MedianOf(rounds);
}

// Of passes over chunks that have just been copied to where they are read, as those that a server
// receives.
double SecondsPerGigabyte(const std::function<bool(std::span<const float>)>& pass) {
  constexpr size_t kChunkValues = 1 << 16;
  constexpr int kChunks = 640;
  const std::vector<float> gradient(kChunks * kChunkValues, 1.0F);
  std::vector<float> chunk(kChunkValues);
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    std::chrono::duration<double> passed{};
    for (int i = 0; i < kChunks; ++i) {
      std::copy_n(
          gradient.begin() + i * static_cast<int64_t>(kChunkValues), kChunkValues, chunk.begin());
      const auto begin = std::chrono::steady_clock::now();
      PUSHPULL_CHECK(pass(chunk));
      passed += std::chrono::steady_clock::now() - begin;
    }
    rounds.push_back(passed.count());
  }
  return MedianOf(rounds) / (static_cast<double>(gradient.size() * sizeof(float)) / 1e9);
}

// What a trace costs a worker for each chunk that it records, without sending the report.
double TraceSecondsPerChunk() {
  constexpr uint64_t kChunks = 1'000;
  TraceRecorder trace(WorkerId{0});
  const SteadyTime now{};
  const TraceSteps order{.steps = 1, .pushes_max = 2 * kChunks, .within = std::chrono::seconds(60)};
  const double recorded = SecondsOf(100, [&] {
    trace.Start(order, Step{0}, now);
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      const ServerId server{static_cast<uint32_t>(chunk % 2)};
      trace.OnAnswered({.server = server, .chunk = ChunkId{chunk}}, {}, {});
    }
    trace.OnSynchronized(Step{0});
    PUSHPULL_CHECK(!trace.TakeIfOver(now).empty());
  });
  return recorded / static_cast<double>(kChunks);
}

void Print() {
  MetricsRegistry registry;
  ServerMetrics server(registry);
  MetricsRegistry workers_registry;
  WorkerMetrics worker(workers_registry);
  constexpr uint64_t kBytes = 1 << 20;
  const double chunk = SecondsOf(100'000, [&] {
    worker.AddPushed("tcp", kBytes);
    server.AddPushed("tcp", kBytes);
    server.ObserveQueue(std::chrono::microseconds(40));
    server.AddPulled("tcp", kBytes);
    worker.AddPulled("tcp", kBytes);
  });
  const SyncObservation observation{
      .sync = std::chrono::milliseconds(100), .phases = {}, .step = std::chrono::milliseconds(200)};
  const double step = SecondsOf(100'000, [&] { worker.Observe(observation, std::nullopt); });
  std::printf(
      "{\"check_seconds_per_gigabyte\": %.6g, \"squares_seconds_per_gigabyte\": %.6g, "
      "\"metrics_seconds_per_chunk\": %.6g, "
      "\"metrics_seconds_per_step\": %.6g, \"trace_seconds_per_chunk\": %.6g}\n",
      SecondsPerGigabyte(AllFinite),
      SecondsPerGigabyte([](std::span<const float> x) { return FastSumOfSquares(x) > 0; }),
      chunk,
      step,
      TraceSecondsPerChunk());
}

}  // namespace
}  // namespace pushpull

int main() {
  pushpull::Print();
}
