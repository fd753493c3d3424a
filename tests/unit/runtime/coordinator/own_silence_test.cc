// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/own_silence.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SteadyTime kStart{};

TEST(OwnSilenceTest, EventsInTimeAreNoSilence) {
  OwnSilence silence(seconds(20));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(silence.OnEvent(kStart + i * seconds(4)), Duration::zero()) << i;
  EXPECT_EQ(silence.Recent(kStart + seconds(400)), std::nullopt);
}

TEST(OwnSilenceTest, IsRememberedForOneTimeout) {
  OwnSilence silence(seconds(20));
  silence.OnEvent(kStart);

  EXPECT_EQ(silence.OnEvent(kStart + seconds(24)), seconds(24));

  EXPECT_EQ(silence.Recent(kStart + seconds(24)), seconds(24));
  EXPECT_EQ(silence.Recent(kStart + seconds(44)), seconds(24));
  EXPECT_EQ(silence.Recent(kStart + seconds(45)), std::nullopt);
}

TEST(OwnSilenceTest, AShortTimeoutMakesShortSilencesCount) {
  OwnSilence silence(seconds(2));
  silence.OnEvent(kStart);
  EXPECT_EQ(silence.OnEvent(kStart + milliseconds(900)), Duration::zero());
  EXPECT_EQ(silence.OnEvent(kStart + milliseconds(1900)), seconds(1));
}

TEST(OwnSilenceTest, MoreThanHalfOfSeveralMembersAreEverybody) {
  EXPECT_TRUE(OwnSilence::IsCutOff(2, 2));
  EXPECT_TRUE(OwnSilence::IsCutOff(3, 5));
  EXPECT_FALSE(OwnSilence::IsCutOff(2, 4));
  EXPECT_FALSE(OwnSilence::IsCutOff(1, 1));
  EXPECT_FALSE(OwnSilence::IsCutOff(0, 0));
}

}  // namespace
}  // namespace pushpull
