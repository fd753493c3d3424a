// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/idx_file.h"

#include <numeric>
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

class IdxFileTest : public testing::Test {
 protected:
  absl::StatusOr<IdxArray> Read(const Bytes& contents, size_t num_dims) {
    WriteFile(path_, contents);
    return ReadIdxFile(path_, num_dims);
  }

  // Reading fails with kDataLoss, and the text has the path and every one of `parts`.
  void ExpectDataLoss(const Bytes& contents, size_t num_dims, std::vector<std::string> parts) {
    const absl::Status status = Read(contents, num_dims).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    parts.push_back(path_);
    for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path() + "/values";
};

TEST_F(IdxFileTest, ReadsDimensionsAndValues) {
  const absl::StatusOr<IdxArray> array = Read(IdxBytes({2, 3}, {1, 2, 3, 4, 5, 255}), 2);

  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->dims, ElementsAre(2, 3));
  EXPECT_THAT(array->values, ElementsAre(1, 2, 3, 4, 5, 255));
}

TEST_F(IdxFileTest, ReadsCompressedFilesOfAnyName) {
  const absl::StatusOr<IdxArray> array = Read(Gzip(IdxBytes({3}, {7, 8, 9})), 1);

  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->values, ElementsAre(7, 8, 9));
}

TEST_F(IdxFileTest, ReadsFilesLargerThanOneBuffer) {
  Bytes values(3'000'001);
  std::iota(values.begin(), values.end(), uint8_t{0});

  const absl::StatusOr<IdxArray> array = Read(IdxBytes({3'000'001}, values), 1);

  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->values, values);
}

TEST_F(IdxFileTest, ReadsAnArrayWithoutValues) {
  const absl::StatusOr<IdxArray> array = Read(IdxBytes({0, 28, 28}, {}), 3);

  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->dims, ElementsAre(0, 28, 28));
}

TEST_F(IdxFileTest, MissingFileIsNotFound) {
  const absl::Status status = ReadIdxFile(path_, 1).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(path_));
}

TEST_F(IdxFileTest, FolderIsRejected) {
  const absl::Status status = ReadIdxFile(folder_.path(), 1).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(folder_.path() + ": is no regular file"));
}

TEST_F(IdxFileTest, WrongMagicIsShownWithTheExpectedOne) {
  ExpectDataLoss(IdxBytes({1, 1}, {0}), 3, {"starts with 0x00000802", "expected 0x00000803"});
  ExpectDataLoss({'<', 'h', 't', 'm', 'l', '>', '\n', '\n'}, 1, {"starts with 0x3c68746d"});

  Bytes floats = IdxBytes({1}, {0});
  floats[2] = 0x0D;  // the type of float32
  ExpectDataLoss(floats, 1, {"starts with 0x00000d01", "expected 0x00000801"});
}

TEST_F(IdxFileTest, ShortFileIsDataLossWithBothLengths) {
  ExpectDataLoss({}, 1, {"has 0 bytes", "expected at least the 8"});
  ExpectDataLoss({0, 0, 8, 3, 0, 0, 0}, 3, {"has 7 bytes", "expected at least the 16"});
  ExpectDataLoss(IdxBytes({2, 3}, {1, 2, 3, 4, 5}), 2, {"has 5 values", "expected 6 for [2, 3]"});
}

TEST_F(IdxFileTest, LongFileIsDataLoss) {
  ExpectDataLoss(IdxBytes({2}, {1, 2, 3}), 1, {"goes on after the 2 values expected for [2]"});
  ExpectDataLoss(Gzip(IdxBytes({2}, {1, 2, 3})), 1, {"goes on after the 2 values"});
}

TEST_F(IdxFileTest, RejectsSizesAboveTheLimitUnallocated) {
  ExpectDataLoss(IdxBytes({0x40000001}, {}), 1, {"[1073741825]", "at most 1073741824"});
  ExpectDataLoss(IdxBytes({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {}), 3, {"at most 1073741824"});
}

TEST_F(IdxFileTest, TruncatedCompressedFileIsDetected) {
  const Bytes packed = Gzip(IdxBytes({1000}, Bytes(1000, 42)));
  for (size_t length = 0; length < packed.size(); ++length) {
    const Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(length));

    EXPECT_EQ(Read(cut, 1).status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST_F(IdxFileTest, DamagedCompressedFileIsDetected) {
  Bytes packed = Gzip(IdxBytes({5}, {1, 2, 3, 4, 5}));
  packed[packed.size() - 8] ^= 1;  // CRC-32 of the contents

  ExpectDataLoss(packed, 1, {"cannot be unpacked", "incorrect data check"});
}

}  // namespace
}  // namespace pushpull
