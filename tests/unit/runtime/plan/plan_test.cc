// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job/parse.h"
#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr PlanRequest kRequest{.bytes = kGradient};

std::string FieldsOf(const Plan& plan) {
  std::vector<std::string> fields;
  for (const ManifestField& field : plan.recommendation.fields)
    fields.push_back(absl::StrCat(field.path, "=", field.value));
  return absl::StrJoin(fields, " ");
}

TEST(PlanTest, RecommendedFieldsAreThoseOfAManifest) {
  for (const Topology& topology : {Example("pcie-4"),
                                   Example("v100-8"),
                                   Example("dgx-2"),
                                   Example("cluster-100gbe"),
                                   Example("two-racks"),
                                   CpuCluster(2, 0),
                                   CpuCluster(8, 1),
                                   CpuCluster(8, 8)}) {
    const Plan plan = MakePlan(topology, kRequest);
    const std::string manifest =
        absl::StrCat("apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\n",
                     absl::StrJoin(ToManifest(plan.recommendation.fields), "\n"),
                     "\n  image: x\n  command: [x]\n");

    for (const ManifestProblem& problem : ParseTrainingJob(manifest, {}).problems)
      ADD_FAILURE() << ToString(problem) << "\n" << manifest;
  }
}

TEST(PlanTest, RecommendsWhatRunsToday) {
  EXPECT_EQ(FieldsOf(MakePlan(Example("cluster-100gbe"), kRequest)),
            "spec.servers.replicas=8 spec.workers.replicas=8 spec.workers.gpusPerWorker=4 "
            "spec.sync.mode=Sync");
  EXPECT_EQ(FieldsOf(MakePlan(CpuCluster(8, 8), kRequest)),
            "spec.servers.replicas=8 spec.workers.replicas=8 spec.sync.mode=Sync");
  const Plan colocated = MakePlan(CpuCluster(8, 0), kRequest);
  EXPECT_EQ(FieldsOf(colocated),
            "spec.servers.replicas=1 spec.workers.replicas=8 spec.workers.colocatedServer=true "
            "spec.sync.mode=Sync");
  EXPECT_THAT(colocated.recommendation.notes, Contains(HasSubstr("is for Kubernetes")));
}

TEST(PlanTest, ServersOnTheHostWinWhereEachGpuHasItsOwnWay) {
  // Four GPUs at four root ports: each gradient once up and once down, against 2 x 3/4 of a split.
  Topology topology;
  topology.machine = PcieMachine(4);
  topology.machine.pcie->switches = {PcieSwitch{{0}, 16e9, 0},
                                     PcieSwitch{{1}, 16e9, 0},
                                     PcieSwitch{{2}, 16e9, 0},
                                     PcieSwitch{{3}, 16e9, 0}};

  const Plan plan = MakePlan(topology, kRequest);

  EXPECT_EQ(plan.strategies.front().schedule.name, "host");
  EXPECT_NEAR(plan.strategies.front().streamed_seconds, 0.010, 1e-9);
  EXPECT_EQ(FieldsOf(plan),
            "spec.servers.replicas=2 spec.workers.replicas=4 spec.workers.gpusPerWorker=1 "
            "spec.sync.mode=Sync");
}

TEST(PlanTest, RecommendsRacksWhereTheirUplinksAreTheLimit) {
  const Plan plan = MakePlan(Example("two-racks"), kRequest);

  EXPECT_EQ(plan.strategies.front().schedule.name, "rack_ring");
  EXPECT_EQ(FieldsOf(plan),
            "spec.servers.replicas=0 spec.workers.replicas=8 "
            "spec.workers.topologyKey=topology.kubernetes.io/rack spec.sync.mode=AllReduce");
  EXPECT_THAT(plan.recommendation.notes, Contains(HasSubstr("nodes need the label")));
  EXPECT_THAT(plan.recommendation.notes, Contains(HasSubstr("neither checkpoints nor codecs")));
}

TEST(PlanTest, WhatDoesNotExistIsSaidInWords) {
  Topology topology = CpuCluster(8, 0);
  topology.machine = PcieMachine(1);
  topology.machine.nics = {{.bandwidth = 12.5e9}};
  topology.cluster.racks = {Rack{.workers = 4, .uplink = 12.5e9},
                            Rack{.workers = 4, .uplink = 12.5e9}};

  const Plan plan = MakePlan(topology, kRequest);

  EXPECT_EQ(plan.strategies.front().schedule.runner, Runner::kPlanned);
  EXPECT_EQ(plan.recommendation.strategy, "colocated");
  EXPECT_THAT(plan.recommendation.notes, Contains(HasSubstr("nothing runs it yet")));
  EXPECT_THAT(plan.recommendation.notes, Contains(HasSubstr("not placed by rack")));
  EXPECT_THAT(FieldsOf(plan), ::testing::Not(HasSubstr("AllReduce")));
}

TEST(PlanTest, JsonHasTheKeysThatProgramsReadBy) {
  const Plan plan =
      MakePlan(Example("pcie-4"), {.bytes = kGradient, .compute_seconds = 0.1, .batch = 32});

  const nlohmann::json json = nlohmann::json::parse(ToJson(plan));

  const nlohmann::json& best = json.at("strategies").at(0);
  EXPECT_EQ(best.at("name"), "split");
  EXPECT_NEAR(best.at("seconds").get<double>(), 0.015, 1e-9);
  EXPECT_NEAR(best.at("streamed_seconds").get<double>(), 0.015, 1e-9);
  EXPECT_NEAR(best.at("bytes_per_link").at("pcie_gpu").get<double>(), 240e6, 1);
  EXPECT_EQ(json.at("break_even").at("in_turn").at("from_workers"), 2);
  EXPECT_EQ(json.at("recommended").at("fields").at("spec.workers.replicas"), 1);
  EXPECT_EQ(json.at("recommended").at("fields").at("spec.sync.mode"), "Sync");
  EXPECT_TRUE(nlohmann::json::parse(ToJson(MakePlan(Example("pcie-4"), kRequest)))
                  .at("break_even")
                  .is_null());
}

TEST(PlanTest, TextHasFiguresDrawingAndFields) {
  const std::string text = ToText(MakePlan(Example("v100-8"), kRequest));

  EXPECT_THAT(text, HasSubstr("2 x 160 MB / (3 x 18 GB/s) = 5.9 ms"));
  EXPECT_THAT(text, HasSubstr("2 x 160 MB / (3 x 18 GB/s) x 7/8 = 5.2 ms"));
  EXPECT_THAT(text, HasSubstr("GPU 0 -> 3 -> 2 -> 1 -> 5 -> 6 -> 7 -> 4 -> 0, 2 links wide"));
  EXPECT_THAT(text, HasSubstr("gpusPerWorker: 8"));
}

TEST(PlanTest, ManyLinksThatAreAllAlikeAreDrawnOnce) {
  const Plan sixteen = MakePlan(Example("dgx-2"), kRequest);
  const Plan four = MakePlan(Example("pcie-4"), kRequest);

  EXPECT_EQ(sixteen.drawing.size(), 3U);
  EXPECT_THAT(sixteen.drawing, Contains(HasSubstr("15 more like it")));
  EXPECT_THAT(four.drawing, Contains(HasSubstr("GPU 3")));
}

TEST(PlanTest, ADrawingOfAHugeClusterIsShort) {
  Topology topology = CpuCluster(1, 0);
  topology.cluster.racks.assign(1024, Rack{.workers = 4, .servers = 1, .uplink = 50e9});

  const Plan plan = MakePlan(topology, kRequest);

  EXPECT_LE(plan.drawing.size(), 61U);
  EXPECT_THAT(plan.drawing.back(), HasSubstr("more links"));
}

}  // namespace
}  // namespace pushpull
