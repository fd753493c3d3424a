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

  EXPECT_EQ(FinalReasonOf(*ReadTextFile(path)), "unknown flag --epoch");
}

TEST(TerminationMessageTest, ALongReasonIsCutToWhatKubernetesKeeps) {
  const std::string path = testing::TempDir() + "/termination_message";

  WriteFinalMessage(path, std::string(10'000, 'x'));

  EXPECT_EQ(ReadTextFile(path)->size(), kTerminationMessageMax);
}

TEST(TerminationMessageTest, OtherLastWordsAreNotFinal) {
  EXPECT_EQ(FinalReasonOf(""), std::nullopt);
  EXPECT_EQ(FinalReasonOf("Traceback (most recent call last)"), std::nullopt);
  EXPECT_EQ(FinalReasonOf("it said pushpull-final: or so"), std::nullopt);
}

TEST(TerminationMessageTest, WhereNobodyWatchesNothingIsWritten) {
  WriteFinalMessage("", "why");
  WriteFinalMessage("/no/such/folder", "why");
}

}  // namespace
}  // namespace pushpull
