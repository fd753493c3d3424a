// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/console.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

JobStatus Running(uint64_t step, uint64_t samples, double seconds) {
  JobStatus status;
  status.phase = JobPhase::kRunning;
  status.step = Step{step};
  status.samples = samples;
  status.seconds = seconds;
  status.servers = {{.server = ServerId{0}, .is_alive = true},
                    {.server = ServerId{1}, .is_alive = true}};
  status.workers = {{.worker = WorkerId{0}, .is_alive = true}, {.worker = WorkerId{1}}};
  return status;
}

TEST(FormatProgressTest, CountsWhoIsThereWhileTheJobStarts) {
  JobStatus status = Running(0, 0, 0);
  status.phase = JobPhase::kStarting;

  EXPECT_EQ(FormatProgress(status, JobStatus{}), "starting | 2 servers | 1 workers");
}

TEST(FormatProgressTest, TheSpeedIsThatSinceTheEarlierStatus) {
  JobStatus status = Running(1200, 60000, 10);
  status.losses = {{.step = Step{1199}, .loss = 0.43217}};
  for (int i = 0; i < 100; ++i) status.sync_seconds.Add(0.0019);

  const std::string line = FormatProgress(status, Running(1000, 10000, 8));

  EXPECT_EQ(line,
            "step 1200 | loss 0.4322 | 25000 samples/s | sync 1.9 ms | 2 servers | 1 workers");
}

TEST(FormatProgressTest, LeavesOutWhatIsNotKnownYet) {
  const JobStatus status = Running(0, 0, 0);

  EXPECT_EQ(FormatProgress(status, status), "step 0 | 2 servers | 1 workers");
}

TEST(FormatProgressTest, AServerThatIsGoneIsNotCounted) {
  JobStatus status = Running(0, 0, 0);
  status.servers[1].is_alive = false;

  EXPECT_EQ(FormatProgress(status, status), "step 0 | 1 servers | 1 workers");
}

}  // namespace
}  // namespace pushpull
