// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/admission_frame.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/replication/worker_bits.h"
#include "runtime/transport/frame.h"

namespace pushpull {
namespace {

TEST(AdmissionFrameTest, AnAdmissionIsTakenOffTheFrontOfAMeta) {
  const Admission admission{.step = Step{7},
                            .workers = {WorkerId{0}, WorkerId{9}, WorkerId{kWorkersMax - 1}}};
  std::vector<std::byte> meta = EncodeAdmission(admission);
  meta.push_back(std::byte{42});
  std::span<const std::byte> rest = meta;

  const auto taken = TakeAdmission(rest);

  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, admission);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest.front(), std::byte{42});
}

struct GoldenFrame {
  FrameType type;
  bool has_admission;
  std::string file;
};

class GoldenFrameTest : public testing::TestWithParam<GoldenFrame> {};

TEST_P(GoldenFrameTest, TheBytesOfVersion1StayWhatTheyAre) {
  std::vector<std::byte> meta;
  if (GetParam().has_admission) {
    meta =
        EncodeAdmission({.step = Step{0x0102030405060708}, .workers = {WorkerId{1}, WorkerId{10}}});
  }
  std::vector<std::byte> bytes(kFrameHeaderBytes);
  EncodeFrameHeader({.type = GetParam().type,
                     .flags = GetParam().has_admission ? kFlagAdmission : uint8_t{0},
                     .priority = 3,
                     .meta_bytes = static_cast<uint16_t>(meta.size()),
                     .worker = WorkerId{7},
                     .incarnation = Incarnation{8},
                     .epoch = {Term{9}, 10},
                     .chunk = ChunkId{11},
                     .step = Step{12},
                     .weight = 0,
                     .base_version = Step{13}},
                    std::span<std::byte, kFrameHeaderBytes>(bytes));
  bytes.insert(bytes.end(), meta.begin(), meta.end());
  std::ifstream file(PUSHPULL_TEST_DATA "/frames/" + GetParam().file);
  std::vector<std::byte> golden;
  for (unsigned value = 0; file >> std::hex >> value;)
    golden.push_back(static_cast<std::byte>(value));

  EXPECT_EQ(bytes, golden);
}

INSTANTIATE_TEST_SUITE_P(Frames,
                         GoldenFrameTest,
                         testing::Values(GoldenFrame{FrameType::kFetch, true, "fetch_v1.hex"},
                                         GoldenFrame{FrameType::kHeld, false, "held_v1.hex"},
                                         GoldenFrame{FrameType::kDecided, true, "decided_v1.hex"}));

TEST(AdmissionFrameTest, ATruncatedAdmissionIsRejected) {
  const std::vector<std::byte> meta =
      EncodeAdmission({.step = Step{7}, .workers = {WorkerId{3}, WorkerId{20}}});
  for (size_t length = 0; length < meta.size(); ++length) {
    std::span<const std::byte> rest = std::span(meta).first(length);
    EXPECT_FALSE(TakeAdmission(rest).ok()) << length;
  }
}

TEST(AdmissionFrameTest, TooManyWorkersAreRejected) {
  std::vector<std::byte> meta = EncodeAdmission({.step = Step{7}, .workers = {}});
  meta[9] = std::byte{0xFF};
  meta.resize(70'000);
  std::span<const std::byte> rest = meta;

  EXPECT_FALSE(TakeAdmission(rest).ok());
}

}  // namespace
}  // namespace pushpull
