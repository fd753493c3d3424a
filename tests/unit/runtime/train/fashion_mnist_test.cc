// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/fashion_mnist.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/train/idx_bytes.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

class FashionMnistTest : public testing::Test {
 protected:
  FashionMnistTest() {
    WriteFile(folder_ + "/t10k-images-idx3-ubyte", IdxBytes({2, 28, 28}, Bytes(2 * 28 * 28, 200)));
    WriteFile(folder_ + "/t10k-labels-idx1-ubyte", IdxBytes({2}, {9, 0}));
  }

  void ExpectDataLoss(const std::vector<std::string>& parts) {
    const absl::Status status = ReadFashionMnist(folder_, ImageSplit::kTest).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  }

  const TestFolder test_folder_;
  const std::string& folder_ = test_folder_.path();
};

TEST_F(FashionMnistTest, ReadsImagesAndLabelsOfASplit) {
  const absl::StatusOr<ImageSet> set = ReadFashionMnist(folder_, ImageSplit::kTest);

  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->num_images(), 2U);
  EXPECT_THAT(set->labels, ElementsAre(9, 0));
  EXPECT_EQ(set->pixels, Bytes(2 * 28 * 28, 200));
}

TEST_F(FashionMnistTest, MissingSplitNamesThePackage) {
  const absl::Status status = ReadFashionMnist(folder_, ImageSplit::kTrain).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(folder_ + "/train-labels-idx1-ubyte: not found"));
  EXPECT_THAT(status.message(), HasSubstr("install the package dataset-fashion-mnist"));
}

TEST_F(FashionMnistTest, FallsBackToTheCompressedFile) {
  WriteFile(folder_ + "/train-images-idx3-ubyte.gz",
            Gzip(IdxBytes({1, 28, 28}, Bytes(28 * 28, 3))));
  WriteFile(folder_ + "/train-labels-idx1-ubyte.gz", Gzip(IdxBytes({1}, {4})));

  const absl::StatusOr<ImageSet> set = ReadFashionMnist(folder_, ImageSplit::kTrain);

  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->labels, ElementsAre(4));
}

TEST_F(FashionMnistTest, DamagedFileIsAnErrorDespiteACompressedOne) {
  WriteFile(folder_ + "/t10k-labels-idx1-ubyte", {1, 2, 3});
  WriteFile(folder_ + "/t10k-labels-idx1-ubyte.gz", Gzip(IdxBytes({2}, {9, 0})));

  ExpectDataLoss({folder_ + "/t10k-labels-idx1-ubyte: has 3 bytes"});
}

TEST_F(FashionMnistTest, ImagesOfAnotherSizeAreRejected) {
  WriteFile(folder_ + "/t10k-images-idx3-ubyte", IdxBytes({2, 32, 32}, Bytes(2 * 32 * 32)));

  ExpectDataLoss({"t10k-images-idx3-ubyte: holds 2 images of 32 x 32", "expected", "28 x 28"});
}

TEST_F(FashionMnistTest, LabelAndImageCountsMustMatch) {
  WriteFile(folder_ + "/t10k-labels-idx1-ubyte", IdxBytes({3}, {1, 2, 3}));

  ExpectDataLoss({"t10k-labels-idx1-ubyte: holds 3 labels, expected 2"});
}

TEST_F(FashionMnistTest, InvalidLabelIsNamedByItsPosition) {
  WriteFile(folder_ + "/t10k-labels-idx1-ubyte", IdxBytes({2}, {9, 10}));

  ExpectDataLoss({"t10k-labels-idx1-ubyte: label 1 is 10, expected less than 10"});
}

TEST_F(FashionMnistTest, EmptySplitIsRejected) {
  WriteFile(folder_ + "/t10k-images-idx3-ubyte", IdxBytes({0, 28, 28}, {}));
  WriteFile(folder_ + "/t10k-labels-idx1-ubyte", IdxBytes({0}, {}));

  ExpectDataLoss({"holds 0 images of 28 x 28", "expected at least one"});
}

TEST(FashionMnistDataTest, DebianPackageIsComplete) {
  const absl::StatusOr<ImageSet> train =
      ReadFashionMnist(kFashionMnistDirectory, ImageSplit::kTrain);
  const absl::StatusOr<ImageSet> test = ReadFashionMnist(kFashionMnistDirectory, ImageSplit::kTest);

  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ(train->num_images(), 60'000U);
  EXPECT_EQ(test->num_images(), 10'000U);
  for (uint8_t label = 0; label < kImageClasses; ++label) {
    EXPECT_EQ(std::ranges::count(train->labels, label), 6'000);
    EXPECT_EQ(std::ranges::count(test->labels, label), 1'000);
  }
}

}  // namespace
}  // namespace pushpull
