// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/rack_places.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kMegabyte = 1e6;

Topology TwoRacks(int gpus = 0) {
  Topology topology;
  topology.machine.gpus = gpus;
  topology.machine.nics = {{.bandwidth = 100 * kMegabyte}};
  topology.cluster.racks = {{.workers = 2, .servers = 1, .uplink = 25 * kMegabyte},
                            {.workers = 1, .servers = 2, .uplink = 0}};
  return topology;
}

std::vector<size_t> RacksOf(const RackPlaces& places, const std::vector<size_t>& members) {
  std::vector<size_t> racks;
  for (const size_t host : members) racks.push_back(places.hosts[host].rack);
  return racks;
}

TEST(RackPlacesTest, MembersAreDealtToTheRacksInTurn) {
  const RackPlaces places = *PlacesIn(TwoRacks(), 0);

  EXPECT_THAT(RacksOf(places, places.workers), ElementsAre(0, 1, 0));
  EXPECT_THAT(RacksOf(places, places.servers), ElementsAre(0, 1, 1));
  EXPECT_EQ(places.here, "198.18.0.1");
  EXPECT_EQ(places.OfWorker(0).address, "198.18.0.2");
  EXPECT_EQ(places.OfServer(2).address, "198.18.0.7");
  EXPECT_EQ(places.OfWorker(3).address, places.OfWorker(0).address);
  EXPECT_EQ(PlacesIn(TwoRacks(), 511)->here, "198.19.255.1");
}

TEST(RackPlacesTest, EachGpuOfAMachineHasAWorker) {
  const RackPlaces places = *PlacesIn(TwoRacks(2), 0);

  EXPECT_THAT(RacksOf(places, places.workers), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(places.OfWorker(1).address, places.OfWorker(0).address);
}

TEST(RackPlacesTest, MembersWithoutAPlaceAreRefused) {
  const RackPlaces places = *PlacesIn(TwoRacks(), 0);
  TrainingJobSpec spec;
  spec.workers.replicas = 3;
  spec.servers.replicas = 3;
  EXPECT_TRUE(CheckPlaces(places, spec).ok());

  spec.servers.replicas = 4;
  EXPECT_THAT(std::string(CheckPlaces(places, spec).message()),
              HasSubstr("spec.servers.replicas: is 4, the topology has places for 3"));
  spec.sync.mode = SyncMode::kAllReduce;
  EXPECT_TRUE(CheckPlaces(places, spec).ok());
  Topology large = TwoRacks();
  large.cluster.racks[0].workers = 300;
  EXPECT_EQ(PlacesIn(large, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RackPlacesTest, LinksHaveTheSpeedsOfTheTopology) {
  const RackPlaces places = *PlacesIn(TwoRacks(), 0);

  const std::vector<NetworkCommand> commands =
      NetworkCommands(places, "pp7", [](size_t where) { return absl::StrCat("path", where); });

  std::vector<std::string> lines;
  for (const NetworkCommand& command : commands)
    lines.push_back(absl::StrCat(command.where, ": ", absl::StrJoin(command.words, " ")));
  EXPECT_THAT(lines, Contains("0: ip link add pp7 type veth peer name here netns path1"));
  EXPECT_THAT(lines, Contains("1: ip link set port2 master rack0 up"));
  EXPECT_THAT(lines, Contains("2: ip address add 198.18.0.2/24 dev eth0"));
  const std::string rate = " root tbf rate 800000000bit burst 131072b latency 20ms";
  EXPECT_THAT(lines, Contains("2: tc qdisc add dev eth0" + rate));
  EXPECT_THAT(lines, Contains("1: tc qdisc add dev port0" + rate));
  EXPECT_THAT(lines, Contains(HasSubstr("1: tc qdisc add dev up0 root tbf rate 200000000bit ")));
  EXPECT_THAT(lines, Contains(HasSubstr("1: tc qdisc add dev down0 root tbf rate 200000000bit ")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("dev up1 root"))));  // without limit
}

}  // namespace
}  // namespace pushpull
