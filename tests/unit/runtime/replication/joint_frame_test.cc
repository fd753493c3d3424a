// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/joint_frame.h"

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/consistency/worker_group.h"
#include "runtime/replication/worker_bits.h"
#include "runtime/transport/frame.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

Contribution Pushed(uint32_t worker, double weight = 1) {
  return {
      .worker = WorkerId{worker}, .incarnation = Incarnation{~uint64_t{worker}}, .weight = weight};
}

// The workers with the highest indices.
std::vector<Contribution> LastWorkers(size_t count) {
  std::vector<Contribution> contributors;
  for (size_t i = 0; i < count; ++i)
    contributors.push_back(Pushed(static_cast<uint32_t>(kWorkersMax - count + i)));
  return contributors;
}

void ExpectSameWorkers(const std::vector<Contribution>& decoded,
                       const std::vector<Contribution>& encoded) {
  ASSERT_EQ(decoded.size(), encoded.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    EXPECT_EQ(decoded[i].worker, encoded[i].worker);
    EXPECT_EQ(decoded[i].incarnation, encoded[i].incarnation);
    EXPECT_EQ(decoded[i].weight, encoded[i].weight);
  }
}

TEST(JointFrameTest, WorkersIncarnationsAndWeightsArrive) {
  const std::vector<Contribution> contributors = {
      Pushed(0, 0), Pushed(7, 0.1), Pushed(kWorkersMax - 1, 1e18)};

  const auto decoded = DecodeJoint(EncodeJoint(contributors));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSameWorkers(*decoded, contributors);
}

TEST(JointFrameTest, TheLargestGroupFitsAMeta) {
  const std::vector<Contribution> largest = LastWorkers(kGroupMembersMax);

  const std::vector<std::byte> meta = EncodeJoint(largest);
  const auto decoded = DecodeJoint(meta);

  EXPECT_LE(meta.size(), kFrameMetaBytesMax);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSameWorkers(*decoded, largest);
}

TEST(JointFrameTest, EveryOtherLengthIsRefused) {
  std::vector<std::byte> meta = EncodeJoint(LastWorkers(2));
  for (size_t length = 0; length < meta.size(); ++length) {
    const auto decoded = DecodeJoint(std::span(meta).first(length));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << length;
  }
  meta.push_back(std::byte{0});
  EXPECT_EQ(DecodeJoint(meta).status().code(), absl::StatusCode::kDataLoss);
}

TEST(JointFrameTest, OtherListsAreRefused) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::map<std::string, std::vector<Contribution>> malformed = {
      {"none", {}},
      {"one", {Pushed(3)}},
      {"too many", LastWorkers(kGroupMembersMax + 1)},
      {"out of order", {Pushed(3), Pushed(2), Pushed(4)}},
      {"twice", {Pushed(3), Pushed(4), Pushed(4)}},
      {"NaN", {Pushed(3), Pushed(4, kNaN)}},
      {"negative", {Pushed(3, -1), Pushed(4)}},
      {"infinite", {Pushed(3), Pushed(4, kInfinity)}},
      {"negative infinite", {Pushed(3, -kInfinity), Pushed(4)}},
      {"unknown worker", {Pushed(3), Pushed(kWorkersMax)}},
  };
  for (const auto& [what, contributors] : malformed) {
    const auto decoded = DecodeJoint(EncodeJoint(contributors));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << what;
  }
}

TEST(JointFrameTest, ARefusalNamesWhatIsWrong) {
  const auto twice = DecodeJoint(EncodeJoint(std::vector{Pushed(3), Pushed(3)}));
  const auto negative = DecodeJoint(EncodeJoint(std::vector{Pushed(3), Pushed(4, -2.5)}));

  EXPECT_THAT(twice.status().message(), HasSubstr("worker-3"));
  EXPECT_THAT(negative.status().message(), HasSubstr("-2.5"));
}

}  // namespace
}  // namespace pushpull
