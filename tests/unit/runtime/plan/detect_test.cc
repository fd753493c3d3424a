// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/detect.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/parse_topology.h"

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tree like /sys with what a test puts there.
class DetectTopologyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            absl::StrCat("sysfs-",
                         getpid(),
                         "-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  void AddDevice(const std::string& path,
                 const std::string& code,
                 const std::string& speed,
                 int lanes,
                 int node = 0) {
    const std::string folder = absl::StrCat("devices/", path, "/");
    Write(folder + "class", code);
    Write(folder + "max_link_speed", speed);
    Write(folder + "current_link_speed", speed);
    Write(folder + "current_link_width", absl::StrCat(lanes));
    Write(folder + "numa_node", absl::StrCat(node));
  }

  // Root port, switch, two ports of it, each with a GPU.
  void AddSwitchWithTwoGpus(const std::string& domain, const std::string& bus, int node) {
    const std::string port =
        absl::StrCat("pci", domain, ":00/", domain, ":00:01.0/", domain, ":", bus, "0:00.0");
    AddDevice(port, "0x060400", "8.0 GT/s PCIe", 16, node);
    for (const char* slot : {"1", "2"}) {
      const std::string down = absl::StrCat(port, "/", domain, ":", bus, slot, ":0", slot, ".0");
      AddDevice(down, "0x060400", "8.0 GT/s PCIe", 16, node);
      AddDevice(absl::StrCat(down, "/", domain, ":", bus, slot, ":00.0"),
                "0x030200",
                "8.0 GT/s PCIe",
                16,
                node);
    }
  }

  void AddNic(const std::string& name, const std::string& speed) {
    Write(absl::StrCat("class/net/", name, "/speed"), speed);
    Write(absl::StrCat("class/net/", name, "/device/vendor"), "0x15b3");
  }

  Detected Detect(const SmiLinks& smi = {}) const { return DetectTopology(root_.string(), smi); }

  std::filesystem::path root_;
};

TEST_F(DetectTopologyTest, GpusOfTwoSwitchesAreFoundWithTheirLinks) {
  AddSwitchWithTwoGpus("0000", "1", 0);
  AddSwitchWithTwoGpus("0001", "8", 1);

  const Machine machine = Detect().topology.machine;

  EXPECT_EQ(machine.gpus, 4);
  ASSERT_TRUE(machine.pcie.has_value());
  EXPECT_NEAR(machine.pcie->bandwidth, 15.754e9, 1e6);  // 8 GT/s x 16 lanes x 128/130 / 8
  ASSERT_EQ(machine.pcie->switches.size(), 2U);
  EXPECT_THAT(machine.pcie->switches[0].gpus, ElementsAre(0, 1));
  EXPECT_THAT(machine.pcie->switches[1].gpus, ElementsAre(2, 3));
  EXPECT_EQ(machine.pcie->switches[1].numa_node, 1);
  EXPECT_NEAR(machine.pcie->switches[0].uplink, 15.754e9, 1e6);
}

TEST_F(DetectTopologyTest, WhatIsFoundIsATopology) {
  AddSwitchWithTwoGpus("0000", "1", 0);
  AddNic("eth0", "100000");

  const Topology found = Detect().topology;

  const ParsedTopology parsed = ParseTopology(ToYaml(found));
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.topology.machine.gpus, 2);
  ASSERT_EQ(found.machine.nics.size(), 1U);
  EXPECT_DOUBLE_EQ(found.machine.nics[0].bandwidth, 12.5e9);
}

TEST_F(DetectTopologyTest, AnIdleLinkCountsWithItsFullSpeed) {
  const std::string gpu = "pci0000:00/0000:00:03.0/0000:04:00.0";
  AddDevice("pci0000:00/0000:00:03.0", "0x060400", "16.0 GT/s PCIe", 16);
  AddDevice(gpu, "0x030200", "32.0 GT/s PCIe", 16);
  Write(absl::StrCat("devices/", gpu, "/current_link_speed"), "2.5 GT/s PCIe");

  const Detected found = Detect();

  // The slot is the slower end.
  EXPECT_NEAR(found.topology.machine.pcie->bandwidth, 31.508e9, 1e6);
  EXPECT_THAT(found.notes, Contains(HasSubstr("2.5 GT/s now: idle GPUs save power")));
}

TEST_F(DetectTopologyTest, AScreenOfARemoteConsoleIsNoGpu) {
  AddDevice("pci0000:00/0000:00:1c.0/0000:02:00.0", "0x030000", "2.5 GT/s PCIe", 1);
  AddDevice("pci0000:00/0000:00:02.0", "0x020000", "8.0 GT/s PCIe", 16);

  EXPECT_EQ(Detect().topology.machine.gpus, 0);
}

TEST_F(DetectTopologyTest, OfAVirtualMachineTheLinkIsNotKnown) {
  Write("devices/pci0000:00/0000:00:05.0/class", "0x030200");
  Write("devices/pci0000:00/0000:00:06.0/class", "0x030200");

  const Detected found = Detect();

  EXPECT_EQ(found.topology.machine.gpus, 2);
  EXPECT_DOUBLE_EQ(found.topology.machine.pcie->bandwidth, 16e9);
  EXPECT_EQ(found.topology.machine.pcie->switches.size(), 2U);
  EXPECT_THAT(found.notes, Contains(HasSubstr("16GB/s is taken")));
}

TEST_F(DetectTopologyTest, NicsWithoutASpeedAreNamed) {
  AddNic("eth0", "-1");
  AddNic("eth1", "25000");
  AddNic("eth2", "25000");
  Write("class/net/lo/mtu", "65536");

  const Detected found = Detect();

  ASSERT_EQ(found.topology.machine.nics.size(), 1U);
  EXPECT_EQ(found.topology.machine.nics[0], (Nic{.bandwidth = 25e9 / 8, .count = 2}));
  EXPECT_THAT(found.notes, Contains(HasSubstr("NIC eth0: the kernel does not know its speed")));
  EXPECT_THAT(found.notes, ::testing::Not(Contains(HasSubstr("NIC lo"))));
}

TEST_F(DetectTopologyTest, NothingFoundIsSaid) {
  const Detected found = Detect();

  EXPECT_EQ(found.topology.machine, Machine{});
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("no GPU below"), HasSubstr("no NIC")));
}

TEST_F(DetectTopologyTest, NvLinksAreThoseOfTheSameGpus) {
  AddSwitchWithTwoGpus("0000", "1", 0);
  SmiLinks smi{.gpus = 2, .nvlink = NvLinks{.bandwidth = 25e9, .pairs = {{0, 1, 4}}}};

  EXPECT_EQ(Detect(smi).topology.machine.nvlink, smi.nvlink);
  smi.gpus = 3;
  EXPECT_FALSE(Detect(smi).topology.machine.nvlink.has_value());
  EXPECT_THAT(Detect(smi).notes, Contains(HasSubstr("nvidia-smi shows 3 GPUs, sysfs 2")));
}

}  // namespace
}  // namespace pushpull
