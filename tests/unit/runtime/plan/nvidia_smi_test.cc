// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/nvidia_smi.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/nvlink_rings.h"
#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

// Of an instance with eight V100; the header is underlined, as nvidia-smi prints it.
constexpr char kCubeMesh[] =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\t0-31,64-95\t0\n"
    "GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\t0-31,64-95\t0\n"
    "GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\t0-31,64-95\t0\n"
    "GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\t0-31,64-95\t0\n"
    "GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\t32-63,96-127\t1\n"
    "GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\t32-63,96-127\t1\n"
    "GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\t32-63,96-127\t1\n"
    "GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \t32-63,96-127\t1\n"
    "\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n";

// `links` between every pair of `gpus`.
std::string EvenMatrix(int gpus, const std::string& links) {
  std::string text;
  for (int i = 0; i < gpus; ++i) text += "\tGPU" + std::to_string(i);
  text += "\tNIC0\tCPU Affinity\n";
  for (int i = 0; i < gpus; ++i) {
    text += "GPU" + std::to_string(i);
    for (int j = 0; j < gpus; ++j) text += i == j ? "\t X " : "\t" + links;
    text += "\tPIX\t0-31\n";
  }
  return text + "NIC0" + std::string(static_cast<size_t>(gpus), '\t') + "\t X\n";
}

TEST(ReadSmiTest, ACubeMeshIsThatOfTheExample) {
  const SmiLinks found = ReadSmi(kCubeMesh, "GPU 0: Tesla V100 (UUID: x)\n\t Link 0: 18 GB/s\n");

  ASSERT_EQ(found.gpus, 8);
  ASSERT_TRUE(found.nvlink.has_value());
  EXPECT_THAT(found.nvlink->pairs, ::testing::UnorderedElementsAreArray(CubeMesh().nvlink->pairs));
  EXPECT_DOUBLE_EQ(found.nvlink->bandwidth, 18e9);
  EXPECT_TRUE(found.notes.empty());
}

TEST(ReadSmiTest, MoreLinksThanAGpuHasLeadToSwitches) {
  const SmiLinks found = ReadSmi(EvenMatrix(8, "NV12"), "");

  EXPECT_EQ(found.gpus, 8);
  ASSERT_TRUE(found.nvlink.has_value());
  EXPECT_EQ(found.nvlink->links_to_switch, 12);
  EXPECT_TRUE(found.nvlink->pairs.empty());
  EXPECT_THAT(found.notes, ::testing::Contains(::testing::HasSubstr("25 GB/s is taken")));
}

TEST(ReadSmiTest, AsManyLinksAsAGpuHasLeadToTheOthers) {
  const SmiLinks found = ReadSmi(EvenMatrix(4, "NV4"), "\t Link 0: 25.781 GB/s\n");

  ASSERT_TRUE(found.nvlink.has_value());
  EXPECT_EQ(found.nvlink->links_to_switch, 0);
  EXPECT_EQ(found.nvlink->pairs.size(), 6U);
  EXPECT_DOUBLE_EQ(found.nvlink->bandwidth, 25.781e9);
}

TEST(ReadSmiTest, WithoutNvLinksOrOutputThereAreNone) {
  EXPECT_EQ(ReadSmi(EvenMatrix(2, "PHB"), "").gpus, 2);
  EXPECT_FALSE(ReadSmi(EvenMatrix(2, "PHB"), "").nvlink.has_value());
  EXPECT_EQ(ReadSmi("", "").gpus, 0);
  EXPECT_EQ(ReadSmi("\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n", "").gpus, 1);
  EXPECT_EQ(ReadSmi("\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-31\nNIC0\tPIX\t X \n", "").gpus,
            1);
  EXPECT_EQ(ReadSmi("NVIDIA-SMI has failed because it couldn't communicate\n", "").gpus, 0);
}

}  // namespace
}  // namespace pushpull
