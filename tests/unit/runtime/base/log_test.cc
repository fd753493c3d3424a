// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// What `write` puts to standard error.
template <typename Write>
std::string Written(const Write& write) {
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, ALineHasTimeLevelNodeMessageAndFields) {
  const Log log("server-1");

  const std::string line = Written([&] {
    log.Info("view", {{"number", 3}, {"members", "worker-0"}, {"share", 0.5}});
  });

  EXPECT_THAT(line,
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9:.]+ info server-1 "
                           "view number=3 members=worker-0 share=0.5\n"));
}

TEST(LogTest, ValuesThatAreNotOneWordAreQuoted) {
  const Log log("n");

  const std::string line = Written([&] {
    log.Error("e", {{"a", "two words"}, {"b", "say \"x\\y\""}, {"c", ""}, {"d", "k=v"}});
  });

  EXPECT_THAT(line, EndsWith("e a=\"two words\" b=\"say \\\"x\\\\y\\\"\" c=\"\" d=\"k=v\"\n"));
}

TEST(LogTest, NeitherMessageNorValueReachesTheTerminal) {
  const Log log("n");

  const std::string line = Written([&] {
    log.Info("lost: \x1b[2J\nforged", {{"peer", "\x1b]0;title\x07"}});
  });

  EXPECT_THAT(line, EndsWith(" n lost: \\x1b[2J\\nforged peer=\\x1b]0;title\\x07\n"));
}

TEST(LogTest, ALineIsBounded) {
  const Log log("n");

  const std::string line = Written([&] { log.Info("m", {{"why", std::string(1 << 20, 'x')}}); });

  EXPECT_LT(line.size(), 20'000U);
}

TEST(LogTest, AValueCannotStartANewLine) {
  const Log log("n");

  const std::string line = Written([&] { log.Info("m", {{"why", "one\ntwo"}}); });

  EXPECT_THAT(line, EndsWith("m why=\"one two\"\n"));
}

TEST(LogTest, LinesBelowTheLevelAreNotWritten) {
  const Log log("n", LogLevel::kWarning);

  EXPECT_THAT(Written([&] {
                log.Debug("d");
                log.Info("i");
              }),
              IsEmpty());
  EXPECT_THAT(Written([&] { log.Warning("w"); }), HasSubstr(" warning n w\n"));
  EXPECT_THAT(Written([&] { log.Error("e"); }), HasSubstr(" error n e\n"));
}

TEST(LogTest, ACopyWritesForTheSameNode) {
  const Log log("worker-2", LogLevel::kDebug);
  const Log copy = log;

  EXPECT_THAT(Written([&] { copy.Debug("m"); }), HasSubstr(" debug worker-2 m\n"));
}

TEST(ParseLogLevelTest, EveryNameIsReadAndOthersAreQuoted) {
  EXPECT_EQ(*ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(*ParseLogLevel("info"), LogLevel::kInfo);
  EXPECT_EQ(*ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(*ParseLogLevel("error"), LogLevel::kError);

  const absl::Status status = ParseLogLevel("Info").status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"Info\""));
}

}  // namespace
}  // namespace pushpull
