// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/terminal_view.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

JobStatus Job(uint32_t num_workers, uint32_t num_servers) {
  JobStatus status;
  status.job = "mnist";
  status.phase = JobPhase::kRunning;
  status.term = Term{1};
  status.view = 1;
  status.desired_workers = num_workers;
  status.desired_servers = num_servers;
  status.step = Step{100};
  for (uint32_t i = 0; i < num_workers; ++i) {
    status.workers.push_back(
        {.worker = WorkerId{i}, .is_alive = true, .is_member = true, .step = Step{100}});
  }
  for (uint32_t i = 0; i < num_servers; ++i)
    status.servers.push_back({.server = ServerId{i}, .is_alive = true});
  return status;
}

// After two seconds in which steps took 10 ms, 6 of them waiting.
StatusHistory After(const JobStatus& before, JobStatus now) {
  now.samples = before.samples + 2000;
  for (int i = 0; i < 100; ++i) {
    now.sync_seconds.Add(0.010);
    now.phase_seconds[static_cast<size_t>(SyncPhase::kWait)].Add(0.006);
    now.phase_seconds[static_cast<size_t>(SyncPhase::kWire)].Add(0.002);
    now.phase_seconds[static_cast<size_t>(SyncPhase::kReply)].Add(0.002);
  }
  StatusHistory history(StatusHistory::Keeps::kNewest);
  history.Add(1000, std::make_shared<const JobStatus>(before));
  history.Add(1002, std::make_shared<const JobStatus>(std::move(now)));
  return history;
}

std::string Text(const StatusHistory& history, TerminalSize size = {.columns = 100, .rows = 40}) {
  return absl::StrJoin(TerminalLines(history, size), "\n");
}

TEST(TerminalViewTest, SaysHowFastTheJobIsAndWhereItsTimeGoes) {
  const std::string text = Text(After(Job(2, 2), Job(2, 2)));

  EXPECT_THAT(text, HasSubstr("mnist: Running, Sync"));
  EXPECT_THAT(text, HasSubstr("step 100   1000 samples/s"));
  EXPECT_THAT(text, HasSubstr("2 of 2 workers   2 of 2 servers"));
  EXPECT_THAT(text, HasSubstr("wait ############## 60 %"));
}

TEST(TerminalViewTest, WhatIsWrongComesFirst) {
  JobStatus now = Job(3, 2);
  now.workers[2].is_alive = false;
  now.workers[2].is_member = false;
  now.workers[1].step = Step{60};
  now.servers.erase(now.servers.begin());
  now.stall = Stall{.step = Step{61}, .tensor = "w", .missing = {WorkerId{1}}, .seconds = 12};

  const std::vector<std::string> lines =
      TerminalLines(After(Job(3, 2), now), {.columns = 100, .rows = 40});
  const std::string text = absl::StrJoin(lines, "\n");

  EXPECT_THAT(text, HasSubstr("late: step 61 waits for worker-1"));
  EXPECT_THAT(lines,
              Contains(AllOf(HasSubstr("worker-2     gone"), HasSubstr("server-0     missing"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("worker-1     late"), HasSubstr("-40"))));
  EXPECT_LT(text.find("worker-2     gone"), text.find("worker-1     late"));
  EXPECT_LT(text.find("worker-1     late"), text.find("worker-0     member"));
  EXPECT_THAT(text, HasSubstr("! server-0 lost"));
}

TEST(TerminalViewTest, FitsTheTerminal) {
  const StatusHistory history = After(Job(1, 2), Job(1000, 64));

  for (const size_t rows : {5U, 10U, 24U, 60U}) {
    const std::vector<std::string> lines = TerminalLines(history, {.columns = 60, .rows = rows});
    EXPECT_LE(lines.size(), rows);
    for (const std::string& line : lines) EXPECT_LE(line.size(), 60U) << line;
  }
  EXPECT_THAT(Text(history), HasSubstr("and 97"));
}

TEST(TerminalViewTest, ATextOfTheJobCannotWriteToTheTerminal) {
  JobStatus now = Job(1, 1);
  now.failure = "bad \x1b[2J tensor\nline";

  const std::string text = Text(After(Job(1, 1), now));

  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("failed: bad \\x1b[2J tensor\\nline"));
}

TEST(StatusLineTest, IsOneLineWithTheSameFigures) {
  const std::string line = StatusLine(After(Job(2, 2), Job(2, 2)));

  EXPECT_THAT(line, HasSubstr("mnist: Running   step 100   1000 samples/s"));
  EXPECT_THAT(line, HasSubstr("wait ############## 60 %"));
  EXPECT_FALSE(absl::StrContains(line, "\n"));
}

}  // namespace
}  // namespace pushpull
