// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/parse_topology.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kHead[] = "apiVersion: pushpull.dev/v1alpha1\nkind: Topology\n";
constexpr char kPcie[] = "machine: {gpus: 4, pcie: {bandwidth: 16GB/s";

// The problems of a topology with this body, a line each.
std::string ProblemsOf(const std::string& body) {
  std::string lines;
  for (const ManifestProblem& problem : ParseTopology(absl::StrCat(kHead, body)).problems)
    absl::StrAppend(&lines, ToString(problem), "\n");
  return lines;
}

TEST(ParseTopologyTest, OneSwitchIsOverAllGpusUnlessItSaysOtherwise) {
  const ParsedTopology parsed = ParseTopology(absl::StrCat(kHead, kPcie, "}}\n"));

  ASSERT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.topology.machine, PcieMachine(4));
  EXPECT_EQ(NumWorkers(parsed.topology), 4);
}

TEST(ParseTopologyTest, WhatIsWrittenIsReadBack) {
  Topology whole = Example("cluster-100gbe");
  whole.machine.nvlink =
      NvLinks{.bandwidth = 18e9, .latency = 1e-6, .pairs = {{0, 1, 2}, {1, 3, 1}}};
  whole.machine.pcie->between_numa_nodes = 20e9;
  whole.cluster.server_bandwidth = 25e9;
  Topology flat = CpuCluster(8, 2);
  flat.name = "a: \"b\" # c";

  for (const Topology& topology :
       {whole, flat, Example("pcie-4"), Example("v100-8"), Example("dgx-2")}) {
    const ParsedTopology parsed = ParseTopology(ToYaml(topology));
    EXPECT_TRUE(parsed.problems.empty()) << ToYaml(topology);
    EXPECT_EQ(ToYaml(parsed.topology), ToYaml(topology));
    EXPECT_EQ(parsed.topology.name, topology.name);
    EXPECT_EQ(NumWorkers(parsed.topology), NumWorkers(topology));
  }
}

TEST(ParseTopologyTest, UnknownFieldsAreNamedWithTheirPath) {
  EXPECT_EQ(ProblemsOf("machine: {gpu: 4}\ncluster: {workers: 2}\n"),
            "machine.gpu: is not a known field; did you mean gpus?\n");
  EXPECT_THAT(ProblemsOf(absl::StrCat(kPcie, ", switches: [{gpus: [0,1,2,3], up: 1GB/s}]}}\n")),
              HasSubstr("machine.pcie.switches[0].up: is not a known field"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(kPcie, "}}\ncluster: {racks: [{worker: 1, uplink: 1GB/s}]}")),
              HasSubstr("cluster.racks[0].worker: is not a known field; did you mean workers?"));
}

TEST(ParseTopologyTest, AnotherKindOfFileIsNamed) {
  const ParsedTopology parsed =
      ParseTopology("apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\n");

  ASSERT_FALSE(parsed.problems.empty());
  EXPECT_EQ(ToString(parsed.problems[0]), "kind: must be Topology, is \"TrainingJob\"");
}

TEST(ParseTopologyTest, ARateNeedsAUnit) {
  EXPECT_EQ(ProblemsOf("machine: {gpus: 4, pcie: {bandwidth: 16 Gbps}}\n"),
            "machine.pcie.bandwidth: must be a rate such as 16GB/s (bytes) or 100Gb/s (bits), is "
            "\"16 Gbps\"\n");
  EXPECT_THAT(ProblemsOf("machine: {gpus: 4, pcie: {bandwidth: 16}}\n"),
              HasSubstr("machine.pcie.bandwidth: must be a string"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(kPcie, ", latency: 5 minutes}}\n")),
              HasSubstr("machine.pcie.latency: must be a time"));
}

TEST(ParseTopologyTest, EachGpuIsBelowOneSwitch) {
  EXPECT_EQ(ProblemsOf(absl::StrCat(kPcie, ", switches: [{gpus: [0, 1]}, {gpus: [1, 2, 3]}]}}\n")),
            "machine.pcie.switches: must have each GPU once, has GPU 1 2 times\n");
  EXPECT_THAT(ProblemsOf(absl::StrCat(kPcie, ", switches: [{gpus: [0, 1, 2]}]}}\n")),
              HasSubstr("has GPU 3 0 times"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(kPcie, ", switches: [{gpus: [0, 1, 2, 3, 4]}]}}\n")),
              HasSubstr("machine.pcie.switches[0].gpus: has GPU 4, but machine.gpus is 4"));
}

TEST(ParseTopologyTest, NvLinksAreBetweenTwoGpusOrToSwitches) {
  const std::string begin = absl::StrCat(kPcie, "}, nvlink: {bandwidth: 18GB/s");
  EXPECT_THAT(ProblemsOf(absl::StrCat(begin, "}}\n")), HasSubstr("nvlink.links: must be set"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(begin, ", links: [{between: [1, 1]}]}}\n")),
              HasSubstr("machine.nvlink.links[0].between: must be two different GPUs"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(begin, ", links: [{between: [1, 7]}]}}\n")),
              HasSubstr("links[0].between: has GPU 7, but machine.gpus is 4"));
  EXPECT_THAT(
      ProblemsOf(absl::StrCat(begin, ", links: [{between: [1, 2]}, {between: [2, 1]}]}}\n")),
      HasSubstr("links[1].between: is a pair that has been listed"));
  EXPECT_THAT(ProblemsOf(absl::StrCat(begin, ", linksToSwitch: 6, links: [{between: [1, 2]}]}}\n")),
              HasSubstr("machine.nvlink.links: is for GPUs without NVSwitch"));
}

TEST(ParseTopologyTest, AFieldWithoutEffectIsRefused) {
  EXPECT_THAT(ProblemsOf("machine: {pcie: {bandwidth: 1GB/s}}\ncluster: {workers: 2}\n"),
              HasSubstr("machine.pcie: is the links of GPUs; set machine.gpus"));
  EXPECT_THAT(ProblemsOf("machine: {nics: [{bandwidth: 1GB/s}]}\n"
                         "cluster: {workers: 2, serverBandwidth: 1GB/s}\n"),
              HasSubstr("cluster.serverBandwidth: has no effect without servers"));
  EXPECT_THAT(ProblemsOf("machine: {nics: [{bandwidth: 1GB/s}]}\n"
                         "cluster: {workers: 2, racks: [{workers: 2, uplink: 1GB/s}]}\n"),
              HasSubstr("cluster.workers: is that of the racks"));
}

TEST(ParseTopologyTest, ThereMustBeSomebodyToSynchronizeWith) {
  EXPECT_THAT(ProblemsOf("machine: {nics: [{bandwidth: 1GB/s}]}\n"),
              HasSubstr("cluster: must have at least two workers"));
  EXPECT_THAT(ProblemsOf("machine: {}\ncluster: {workers: 2}\n"),
              HasSubstr("machine.nics: must be set"));
  EXPECT_THAT(ProblemsOf("machine: {gpus: 4}\n"), HasSubstr("machine.pcie: must be set"));
  EXPECT_THAT(ProblemsOf("machine: {nics: [{bandwidth: 1GB/s}]}\ncluster: {workers: 0}\n"),
              HasSubstr("cluster.workers: must be between 1 and 4096, is 0"));
  EXPECT_THAT(ProblemsOf(""), HasSubstr("machine: must be set"));
}

TEST(ParseTopologyTest, RacksTogetherHaveAtMostWhatAJobHas) {
  EXPECT_THAT(ProblemsOf("machine: {nics: [{bandwidth: 1GB/s}]}\ncluster: {racks: [{workers: 4096, "
                         "uplink: 1GB/s}, {workers: 1, uplink: 1GB/s}]}\n"),
              HasSubstr("cluster.racks: must have at most 4096 workers and 1024 servers"));
}

}  // namespace
}  // namespace pushpull
