// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/ring_rules.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TensorSpec Dense() {
  return {.name = "w", .dims = {4}};
}

TEST(RingRulesTest, DenseTensorsAreAccepted) {
  TensorSpec summed = Dense();
  summed.reduction = Reduction::kSum;
  TensorSpec largest = Dense();
  largest.reduction = Reduction::kMax;
  TensorSpec half = Dense();
  half.dtype = DType::kBFloat16;

  EXPECT_TRUE(CheckRingTensors(std::vector<TensorSpec>{Dense(), summed, largest, half}).ok());
}

TEST(RingRulesTest, WhatNeedsServersIsRefusedByName) {
  std::vector<TensorSpec> tensors(3, Dense());
  tensors[0].codec = Codec::kFloat16;
  tensors[1].clip_norm = 1;
  tensors[2].rows = RowSpec{};

  for (const TensorSpec& tensor : tensors) {
    const absl::Status status = CheckRingTensors(std::vector<TensorSpec>{tensor});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"w\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr("AllReduce"));
  }
}

TEST(RingRulesTest, WorkersHaveAnAddressExactlyInModeAllReduce) {
  const JobCoreOptions sync = {.settings = {.job = "j"}};
  const JobCoreOptions ring = {.settings = {.job = "j"},
                               .consistency = {.mode = SyncMode::kAllReduce}};
  const RegisterWorker with = {.ring_address = "127.0.0.1:7180"};

  EXPECT_TRUE(CheckRingAddress(sync, {}).ok());
  EXPECT_TRUE(CheckRingAddress(ring, with).ok());
  EXPECT_THAT(std::string(CheckRingAddress(sync, with).message()),
              HasSubstr("without PUSHPULL_RING"));
  EXPECT_THAT(std::string(CheckRingAddress(ring, {}).message()), HasSubstr("with PUSHPULL_RING"));
}

}  // namespace
}  // namespace pushpull
