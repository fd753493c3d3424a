// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/gpus.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GpusTest, TheDriverHasAFolderForEach) {
  const std::string folder = testing::TempDir() + "/gpus_test";
  std::filesystem::create_directories(folder + "/0000:17:00.0");
  std::filesystem::create_directories(folder + "/0000:65:00.0");

  EXPECT_THAT(VisibleGpus({}, folder), ElementsAre("0", "1"));
  EXPECT_THAT(VisibleGpus({}, folder + "/none"), IsEmpty());
}

TEST(GpusTest, TheEnvironmentChoosesAsForCuda) {
  EXPECT_THAT(VisibleGpus({{"CUDA_VISIBLE_DEVICES", "3,GPU-8932,5"}}),
              ElementsAre("3", "GPU-8932", "5"));
  EXPECT_THAT(VisibleGpus({{"CUDA_VISIBLE_DEVICES", "2,-1,3"}}), ElementsAre("2"));
  EXPECT_THAT(VisibleGpus({{"CUDA_VISIBLE_DEVICES", ""}}), IsEmpty());
}

TEST(GpusTest, WorkersHaveTheirOwnUntilThereAreNoMore) {
  const std::vector<std::string> gpus = {"3", "5", "6", "7"};

  EXPECT_EQ(GpusOfWorker(gpus, 1, 2), "6");
  EXPECT_EQ(GpusOfWorker(gpus, 2, 1), "6,7");
  EXPECT_EQ(GpusOfWorker(gpus, 2, 2), "3,5");
  EXPECT_EQ(GpusOfWorker(gpus, 3, 1), "7,3,5");
}

}  // namespace
}  // namespace pushpull
