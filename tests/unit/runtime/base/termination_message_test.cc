// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/termination_message.h"

#include <string>

#include <gtest/gtest.h>

#include "runtime/base/text_file.h"

namespace pushpull {
namespace {

TEST(TerminationMessageTest, WhatIsWrittenIsRead) {
  const std::string path = testing::TempDir() + "/termination_message";

  WriteFinalMessage(path, "unknown flag --epoch");

  const std::optional<ToldEnd> told = ToldEndOf(*ReadTextFile(path));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->reason, "unknown flag --epoch");
  EXPECT_TRUE(told->is_final());
}

TEST(TerminationMessageTest, ALongReasonIsCutToWhatKubernetesKeeps) {
  const std::string path = testing::TempDir() + "/termination_message";

  WriteFinalMessage(path, std::string(10'000, 'x'));

  EXPECT_EQ(ReadTextFile(path)->size(), kTerminationMessageMax);
}

TEST(TerminationMessageTest, AProgramMayAskForARestartOfTheJob) {
  const std::optional<ToldEnd> told = ToldEndOf("pushpull-restart: the state is lost\n");

  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->reason, "the state is lost");
  EXPECT_TRUE(told->restarts_job());
}

TEST(TerminationMessageTest, AWorkerSaysThatItWasReleased) {
  const std::string path = testing::TempDir() + "/termination_message";

  WriteReleasedMessage(path);

  const std::optional<ToldEnd> told = ToldEndOf(*ReadTextFile(path));
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->was_released());
  EXPECT_FALSE(told->is_final());
  EXPECT_FALSE(ToldEndOf("pushpull-released-by-hand").has_value());
}

TEST(TerminationMessageTest, OtherLastWordsSayNothing) {
  EXPECT_FALSE(ToldEndOf("").has_value());
  EXPECT_FALSE(ToldEndOf("Traceback (most recent call last)").has_value());
  EXPECT_FALSE(ToldEndOf("it said pushpull-final: or so").has_value());
}

TEST(TerminationMessageTest, WhereNobodyWatchesNothingIsWritten) {
  WriteFinalMessage("", "why");
  WriteFinalMessage("/no/such/folder", "why");
  WriteReleasedMessage("");
}

}  // namespace
}  // namespace pushpull
