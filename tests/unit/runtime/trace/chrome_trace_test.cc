// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/chrome_trace.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

// Worker and server have one clock, unless `offset` says otherwise. Microseconds.
TracedPush PushAt(int64_t us, uint32_t worker_chunk, uint64_t step = 7) {
  const auto at = [us](int64_t after) { return (us + after) * 1000; };
  return {.server = ServerId{0},
          .chunk = ChunkId{worker_chunk},
          .step = Step{step},
          .ready = at(0),
          .taken_up = at(10),
          .sent = at(20),
          .received = at(200),
          .applied = at(210),
          .received_at = at(100),
          .server_queue_ns = 5'000,
          .sum_ns = 15'000,
          .wait_ns = 30'000,
          .optimize_ns = 20'000,
          .replicate_ns = 10'000,
          .published_at = at(180)};
}

TraceReport ReportOf(uint32_t worker, std::vector<TracedPush> pushes, int64_t offset_ns = 0) {
  for (TracedPush& push : pushes) {
    push.received_at += offset_ns;
    push.published_at += offset_ns;
  }
  return {.worker = WorkerId{worker},
          .clocks = {{ServerId{0}, offset_ns}},
          .tensors = {{"w", ChunkId{0}}, {"bias", ChunkId{2}}},
          .pushes = std::move(pushes),
          .is_last = true};
}

std::vector<json> EventsOf(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

json SliceOf(const json& trace, const std::string& name, int process = -1) {
  for (const json& event : EventsOf(trace, "X"))
    if (event["name"] == name && (process < 0 || event["pid"] == process)) return event;
  ADD_FAILURE() << "no slice " << name;
  return {};
}

TEST(ChromeTraceTest, ArrowsFollowAPushFromWorkerToServerAndBack) {
  const json trace = json::parse(ToChromeTrace("job", {ReportOf(0, {PushAt(0, 1)})}));

  std::vector<std::pair<std::string, double>> arrows;
  for (const char* phase : {"s", "t", "f"})
    for (const json& event : EventsOf(trace, phase)) arrows.emplace_back(phase, event["ts"]);
  // Taken up, summed after the queue, optimized before replication, received.
  EXPECT_THAT(arrows,
              ElementsAre(std::pair("s", 10.0),
                          std::pair("t", 105.0),
                          std::pair("t", 150.0),
                          std::pair("f", 200.0)));
  EXPECT_EQ(SliceOf(trace, "sum w[1]")["dur"], 15.0);
  EXPECT_EQ(SliceOf(trace, "optimize w[1]")["dur"], 20.0);
}

TEST(ChromeTraceTest, TimesAreOfOneClock) {
  const auto ahead = std::chrono::nanoseconds(std::chrono::seconds(10)).count();
  const json trace = json::parse(
      ToChromeTrace("job", {ReportOf(0, {PushAt(0, 0)}), ReportOf(1, {PushAt(5, 0)}, ahead)}));

  // Worker-1's clock is 10 s behind that of the server, which has worker-0's.
  EXPECT_EQ(SliceOf(trace, "w[0]", 1)["ts"], 10.0);
  EXPECT_EQ(SliceOf(trace, "w[0]", 2)["ts"], 15.0 + 10e6);
  EXPECT_EQ(trace["otherData"]["clock_offset_seconds"]["worker-1"], -10.0);
}

TEST(ChromeTraceTest, ContributorsOfAStepMeetInItsOptimizer) {
  const json trace =
      json::parse(ToChromeTrace("job", {ReportOf(0, {PushAt(0, 2)}), ReportOf(1, {PushAt(3, 2)})}));

  size_t optimized = 0;
  for (const json& event : EventsOf(trace, "X")) optimized += event["name"] == "optimize bias[0]";
  EXPECT_EQ(optimized, 1);
  EXPECT_EQ(EventsOf(trace, "f").size(), 2);
}

TEST(ChromeTraceTest, SlicesOfATrackDoNotOverlap) {
  std::vector<TracedPush> pushes;
  for (uint32_t chunk = 0; chunk < 2; ++chunk)
    for (uint32_t i = 0; i < 20; ++i) pushes.push_back(PushAt(i * 7, chunk, i));
  const json trace = json::parse(ToChromeTrace("job", {ReportOf(0, pushes)}));

  std::map<std::pair<int, int>, double> ends;
  std::vector<json> slices = EventsOf(trace, "X");
  std::ranges::stable_sort(slices, {}, [](const json& slice) { return slice["ts"].get<double>(); });
  for (const json& slice : slices) {
    if (slice["cat"] == "step") continue;  // those lie in each other
    double& end = ends[{slice["pid"], slice["tid"]}];
    EXPECT_GE(slice["ts"].get<double>() + 1e-9, end) << slice;
    end = slice["ts"].get<double>() + slice["dur"].get<double>();
  }
}

TEST(ChromeTraceTest, AStepComputesUntilItsFirstGradient) {
  const json trace =
      json::parse(ToChromeTrace("job", {ReportOf(0, {PushAt(0, 0, 7), PushAt(1000, 0, 8)})}));

  EXPECT_EQ(SliceOf(trace, "step 8")["ts"], 210.0);
  EXPECT_EQ(SliceOf(trace, "compute")["dur"], 790.0);
}

TEST(ChromeTraceTest, WhatTheProgramNamesIsShown) {
  TraceReport report = ReportOf(0, {PushAt(0, 0)});
  report.spans = {{"for\"ward", 50'000, 90'000}};
  report.left_out = 3;
  const json trace = json::parse(ToChromeTrace("job", {report}));

  EXPECT_EQ(SliceOf(trace, "for\"ward")["dur"], 40.0);
  EXPECT_EQ(trace["otherData"]["left_out"], 3);
}

TEST(ChromeTraceTest, NoReportsAreAnEmptyTrace) {
  EXPECT_THAT(json::parse(ToChromeTrace("job", {}))["traceEvents"], IsEmpty());
}

}  // namespace
}  // namespace pushpull
