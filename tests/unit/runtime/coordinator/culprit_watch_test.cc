// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/culprit_watch.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

// Seconds of one step of a job: computing, and on each link and in each server.
struct Shape {
  size_t workers = 2;
  size_t servers = 2;
  double own = 0.1;
  double link = 0.01;
  double server = 0.002;
  double bytes = 1e6;  // over one link
};

// An even job in Sync: all steps take equally long.
std::vector<WorkerPace> EvenJob(const Shape& shape) {
  std::vector<WorkerPace> paces;
  for (uint32_t worker = 0; worker < shape.workers; ++worker) {
    WorkerPace pace{.worker = WorkerId{worker}, .own_seconds = shape.own, .links = {}};
    for (uint32_t server = 0; server < shape.servers; ++server)
      pace.links.push_back({ServerId{server}, shape.bytes, shape.link, shape.server});
    paces.push_back(std::move(pace));
  }
  return paces;
}

// What each worker waits for the others follows from what it does itself, as in Sync.
void Synchronize(std::vector<WorkerPace>& paces) {
  const auto busy = [](const WorkerPace& pace) {
    double slowest = 0;
    for (const LinkPace& link : pace.links)
      slowest = std::max(slowest, link.link_seconds + link.server_seconds);
    return pace.own_seconds + slowest;
  };
  double step = 0;
  for (const WorkerPace& pace : paces) step = std::max(step, busy(pace));
  for (WorkerPace& pace : paces) {
    pace.step_seconds = step;
    pace.wait_seconds = step - busy(pace);
  }
}

std::vector<std::string> Names(const std::vector<Culprit>& culprits) {
  std::vector<std::string> names;
  for (const Culprit& culprit : culprits)
    names.push_back(std::string(NameOf(culprit.kind)) + " " + MemberOf(culprit));
  return names;
}

std::vector<std::string> NamesIn(std::vector<WorkerPace> paces, const BusyShares& busy = {}) {
  Synchronize(paces);
  return Names(FindCulprits(paces, busy, CulpritLimits{}));
}

void SlowLink(LinkPace& link, double factor) {
  link.link_seconds *= factor;
}

// A server without processor time is slow in all that it does, receiving included.
void SlowServer(std::vector<WorkerPace>& paces, size_t server, double factor) {
  for (WorkerPace& pace : paces) {
    pace.links[server].link_seconds *= factor;
    pace.links[server].server_seconds *= factor;
  }
}

TEST(FindCulpritsTest, NobodyIsNamedInAnEvenJob) {
  EXPECT_THAT(NamesIn(EvenJob({})), IsEmpty());
  EXPECT_THAT(NamesIn(EvenJob({.workers = 8, .servers = 4})), IsEmpty());
  EXPECT_THAT(NamesIn(EvenJob({.workers = 1, .servers = 1})), IsEmpty());
}

TEST(FindCulpritsTest, WorkerThatComputesForLongerIsNamed) {
  std::vector<WorkerPace> paces = EvenJob({});
  paces[1].own_seconds = 0.5;

  Synchronize(paces);
  const std::vector<Culprit> found = FindCulprits(paces, {}, CulpritLimits{});

  ASSERT_THAT(Names(found), ElementsAre("worker worker-1"));
  EXPECT_THAT(found[0].seconds, DoubleNear(0.4, 1e-9));
  EXPECT_THAT(found[0].share, DoubleNear(0.4 / 0.512, 1e-9));
}

TEST(FindCulpritsTest, EachOfSeveralSlowWorkersIsNamed) {
  std::vector<WorkerPace> paces = EvenJob({.workers = 8, .servers = 4});
  paces[2].own_seconds = 0.3;
  paces[5].own_seconds = 0.5;

  EXPECT_THAT(NamesIn(paces), ElementsAre("worker worker-5", "worker worker-2"));
}

TEST(FindCulpritsTest, WorkerThatNobodyWaitsForIsNotNamed) {
  std::vector<WorkerPace> paces = EvenJob({});
  paces[1].own_seconds = 0.5;
  Synchronize(paces);

  for (WorkerPace& pace : paces) pace.wait_seconds = 0;  // as in Async

  EXPECT_THAT(FindCulprits(paces, {}, CulpritLimits{}), IsEmpty());
}

TEST(FindCulpritsTest, WhatCostsLessThanTheLimitIsNotNamed) {
  std::vector<WorkerPace> paces = EvenJob({});
  paces[1].own_seconds = 0.124;  // a share of 0.148, and 1.24 times as long
  EXPECT_THAT(NamesIn(paces), IsEmpty());

  paces[1].own_seconds = 0.14;
  EXPECT_THAT(NamesIn(paces), ElementsAre("worker worker-1"));

  // Half as much again, of a part that is small.
  paces = EvenJob({.link = 0.2});
  paces[1].own_seconds = 0.15;
  EXPECT_THAT(NamesIn(paces), IsEmpty());

  // Ten times as slow, at what takes no time.
  paces = EvenJob({.link = 0.0001, .server = 0.0001});
  SlowLink(paces[1].links[0], 10);
  SlowServer(paces, 1, 10);
  EXPECT_THAT(NamesIn(paces), IsEmpty());
}

TEST(FindCulpritsTest, SlowServerIsNamedAndNotItsLinks) {
  for (const Shape& shape : {Shape{}, Shape{.workers = 8, .servers = 4}, Shape{.workers = 1}}) {
    std::vector<WorkerPace> paces = EvenJob(shape);
    SlowServer(paces, 1, 20);

    EXPECT_THAT(NamesIn(paces), ElementsAre("server server-1")) << shape.workers;
  }
}

// What a lane is kept from the processor in is mostly a call that receives or sends.
TEST(FindCulpritsTest, ServerWithoutProcessorTimeIsNamedForItsBusyLanes) {
  std::vector<WorkerPace> paces = EvenJob({});
  for (WorkerPace& pace : paces) SlowLink(pace.links[1], 20);

  EXPECT_THAT(NamesIn(paces, {{ServerId{0}, 0.1}, {ServerId{1}, 0.9}}),
              ElementsAre("server server-1"));
  EXPECT_THAT(NamesIn(paces, {{ServerId{0}, 0.1}, {ServerId{1}, 0.1}}),
              ElementsAre("link server-1"));
  EXPECT_THAT(NamesIn(paces, {{ServerId{0}, 0.01}, {ServerId{1}, 0.04}}),
              ElementsAre("link server-1"));
  EXPECT_THAT(NamesIn(paces, {{ServerId{0}, 0.9}, {ServerId{1}, 0.1}}),
              ElementsAre("link server-1"));
}

TEST(FindCulpritsTest, BusyServerThatCostsNothingIsNotNamed) {
  EXPECT_THAT(NamesIn(EvenJob({}), {{ServerId{0}, 0.1}, {ServerId{1}, 0.9}}), IsEmpty());
}

TEST(FindCulpritsTest, SlowLinksOfAServerAreNamedAsOne) {
  for (const Shape& shape : {Shape{}, Shape{.workers = 8, .servers = 4}, Shape{.workers = 1}}) {
    std::vector<WorkerPace> paces = EvenJob(shape);
    for (WorkerPace& pace : paces) SlowLink(pace.links[1], 20);

    EXPECT_THAT(NamesIn(paces), ElementsAre("link server-1")) << shape.workers;
  }
}

TEST(FindCulpritsTest, SlowLinksOfAWorkerAreNamedAsOne) {
  for (const Shape& shape : {Shape{}, Shape{.workers = 8, .servers = 4}, Shape{.servers = 1}}) {
    std::vector<WorkerPace> paces = EvenJob(shape);
    for (LinkPace& link : paces[0].links) SlowLink(link, 20);

    EXPECT_THAT(NamesIn(paces), ElementsAre("link worker-0")) << shape.servers;
  }
}

TEST(FindCulpritsTest, SlowLinkBetweenTwoIsNamedByBoth) {
  for (const Shape& shape : {Shape{}, Shape{.workers = 8, .servers = 4}}) {
    std::vector<WorkerPace> paces = EvenJob(shape);
    SlowLink(paces[1].links[0], 20);

    EXPECT_THAT(NamesIn(paces), ElementsAre("link worker-1/server-0")) << shape.workers;
  }
}

TEST(FindCulpritsTest, EachOfSeveralSlowLinksIsNamed) {
  std::vector<WorkerPace> paces = EvenJob({.workers = 8, .servers = 4});
  SlowLink(paces[1].links[2], 30);
  SlowLink(paces[5].links[2], 20);

  EXPECT_THAT(NamesIn(paces), ElementsAre("link worker-1/server-2", "link worker-5/server-2"));
}

TEST(FindCulpritsTest, LinkWithMoreToCarryIsNotSlow) {
  std::vector<WorkerPace> paces = EvenJob({});
  for (WorkerPace& pace : paces) {
    pace.links[1].bytes *= 20;
    SlowLink(pace.links[1], 20);
  }

  EXPECT_THAT(NamesIn(paces), IsEmpty());
}

TEST(FindCulpritsTest, WorkerWithoutProcessorTimeIsNamedAndNotItsLinks) {
  std::vector<WorkerPace> paces = EvenJob({});
  paces[1].own_seconds = 0.4;
  for (LinkPace& link : paces[1].links) SlowLink(link, 20);

  EXPECT_THAT(NamesIn(paces), ElementsAre("worker worker-1"));
}

TEST(FindCulpritsTest, SlowLinkCostsMoreThanAWorkerExplains) {
  std::vector<WorkerPace> paces = EvenJob({.workers = 4});
  for (LinkPace& link : paces[3].links) SlowLink(link, 60);
  paces[3].own_seconds = 0.24;

  EXPECT_THAT(NamesIn(paces), ElementsAre("link worker-3", "worker worker-3"));
}

// Jobs of random shapes with one random fault: that one is named, and nothing else. Without it
// nobody is, whatever the noise.
class RandomFaultTest : public testing::TestWithParam<uint32_t> {
 protected:
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  uint32_t Below(size_t end) {
    return std::uniform_int_distribution<uint32_t>(0, static_cast<uint32_t>(end) - 1)(random_);
  }
  std::vector<WorkerPace> NoisyJob() {
    const double own = Between(0.02, 2);
    std::vector<WorkerPace> paces = EvenJob({.workers = 2 + Below(7),
                                             .servers = 2 + Below(5),
                                             .own = own,
                                             .link = own * Between(0.05, 1),
                                             .server = own * Between(0.01, 0.2)});
    for (WorkerPace& pace : paces) {
      pace.own_seconds *= Between(0.97, 1.03);
      for (LinkPace& link : pace.links) {
        link.bytes *= Between(0.9, 1.1);
        link.link_seconds *= Between(0.95, 1.05);
        link.server_seconds *= Between(0.9, 1.1);
      }
    }
    return paces;
  }

  std::mt19937 random_{GetParam()};
};

TEST_P(RandomFaultTest, OnlyTheSlowOneIsNamed) {
  for (int round = 0; round < 50; ++round) {
    std::vector<WorkerPace> paces = NoisyJob();
    EXPECT_THAT(NamesIn(paces), IsEmpty());
    const uint32_t worker = Below(paces.size());
    const uint32_t server = Below(paces[0].links.size());
    const double own = paces[0].own_seconds;
    const double link = paces[0].links[0].link_seconds;
    const double factor = 5 + 2 * own / link;
    std::string name;
    switch (Below(5)) {
      case 0:
        paces[worker].own_seconds += 5 * (own + link);
        name = "worker worker-" + std::to_string(worker);
        break;
      case 1:
        SlowServer(paces, server, factor);
        name = "server server-" + std::to_string(server);
        break;
      case 2:
        for (LinkPace& each : paces[worker].links) SlowLink(each, factor);
        name = "link worker-" + std::to_string(worker);
        break;
      case 3:
        for (WorkerPace& each : paces) SlowLink(each.links[server], factor);
        name = "link server-" + std::to_string(server);
        break;
      default:
        SlowLink(paces[worker].links[server], factor);
        name = "link worker-" + std::to_string(worker) + "/server-" + std::to_string(server);
    }

    EXPECT_THAT(NamesIn(paces), ElementsAre(name)) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFaultTest, testing::Range(1U, 11U));

TEST(FindLatenessTest, LatenessIsAgainstTheOthers) {
  std::vector<WorkerPace> paces = EvenJob({.workers = 3});
  paces[1].own_seconds = 0.25;

  const auto lateness = FindLateness(paces);

  EXPECT_THAT(lateness.at(WorkerId{1}), DoubleNear(0.15, 1e-9));
  EXPECT_EQ(lateness.at(WorkerId{0}), 0);
  EXPECT_THAT(FindLateness(std::vector<WorkerPace>{paces[1]}).at(WorkerId{1}), 0);
}

// Reports of two workers and two servers each second, one of which can be made slow.
class CulpritWatchTest : public testing::Test {
 protected:
  // `own`: of worker 1, in the steps of this second.
  void Pass(int num_seconds, double own, uint64_t steps_each = 2) {
    for (int i = 0; i < num_seconds; ++i) {
      now_ += 1s;
      std::vector<WorkerPace> paces = EvenJob(shape_);
      paces[1].own_seconds = own;
      for (WorkerPace& pace : paces) SlowLink(pace.links[1], slow_link_);
      Synchronize(paces);
      busy_[0] += 0.05;
      busy_[1] += busy_each_;
      watch_.OnServer(now_, ServerId{0}, busy_[0]);
      if (!is_late_) watch_.OnServer(now_, ServerId{1}, busy_[1]);
      for (const WorkerPace& pace : paces) {
        StepCosts& costs = costs_[pace.worker];
        costs.links.resize(pace.links.size());
        const auto steps = static_cast<double>(steps_each);
        costs.steps += steps_each;
        costs.step_seconds += steps * pace.step_seconds;
        costs.own_seconds += steps * pace.own_seconds;
        costs.wait_seconds += steps * pace.wait_seconds;
        for (size_t k = 0; k < pace.links.size(); ++k) {
          costs.links[k].server = pace.links[k].server;
          costs.links[k].bytes += steps_each * static_cast<uint64_t>(pace.links[k].bytes);
          costs.links[k].link_seconds += steps * pace.links[k].link_seconds;
          costs.links[k].server_seconds += steps * pace.links[k].server_seconds;
        }
        watch_.OnWorker(now_, pace.worker, costs);
      }
      watch_.Update(now_);
      for (const CulpritWatch::News& news : watch_.Take()) news_.push_back(news.text);
    }
  }

  std::vector<std::string> Named() const {
    JobStatus status;
    watch_.AddTo(status);
    return Names(status.culprits);
  }

  SteadyTime now_ = SteadyTime(1h);
  std::map<WorkerId, StepCosts> costs_;
  CulpritWatch watch_;
  std::vector<std::string> news_;
  Shape shape_;
  double slow_link_ = 1;     // of server 1
  double busy_each_ = 0.05;  // seconds of its lanes, each second
  std::array<double, 2> busy_{};
  bool is_late_ = false;  // server 1 does not report
};

TEST_F(CulpritWatchTest, SlowWorkerIsNamedWithinTwoScrapes) {
  Pass(20, 0.1);
  EXPECT_THAT(Named(), IsEmpty());

  Pass(15, 0.5);
  EXPECT_THAT(Named(), ElementsAre("worker worker-1"));

  Pass(20, 0.1);
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_EQ(news_.size(), 2U);
}

TEST_F(CulpritWatchTest, BusySharesAreOfTheLastSeconds) {
  slow_link_ = 30;
  busy_each_ = 0.9;
  Pass(20, 0.1);
  EXPECT_THAT(Named(), ElementsAre("server server-1"));

  busy_each_ = 0.05;
  Pass(20, 0.1);
  EXPECT_THAT(Named(), ElementsAre("link server-1"));

  // Its next process counts from its start.
  busy_ = {};
  busy_each_ = 0.9;
  Pass(10, 0.1);
  EXPECT_THAT(Named(), ElementsAre("server server-1"));
}

TEST_F(CulpritWatchTest, ServerThatReportsLateCountsAsBusy) {
  Pass(20, 0.1);
  slow_link_ = 30;
  is_late_ = true;
  Pass(20, 0.1);

  EXPECT_THAT(Named(), ElementsAre("server server-1"));
  EXPECT_EQ(news_.size(), 1U);
}

TEST_F(CulpritWatchTest, ServerThatTurnsOutToBeSlowReplacesItsLinks) {
  slow_link_ = 30;
  Pass(20, 0.1);
  ASSERT_THAT(Named(), ElementsAre("link server-1"));

  busy_each_ = 0.9;
  for (int i = 0; i < 20 && news_.size() < 2; ++i) Pass(1, 0.1);

  EXPECT_THAT(Named(), ElementsAre("server server-1"));
  EXPECT_EQ(news_.back(), "link of server-1 holds nobody up any more");
}

TEST_F(CulpritWatchTest, OneLongStepNamesNobody) {
  Pass(20, 0.1);
  Pass(1, 0.3);
  Pass(20, 0.1);

  EXPECT_THAT(news_, IsEmpty());
}

// Between the limits to name somebody and to name nobody.
TEST_F(CulpritWatchTest, NameDoesNotFlapAroundTheLimit) {
  Pass(20, 0.14);
  ASSERT_THAT(Named(), ElementsAre("worker worker-1"));

  for (int i = 0; i < 10; ++i) {
    Pass(10, 0.122);
    Pass(10, 0.135);
  }

  EXPECT_EQ(news_.size(), 1U);
}

TEST_F(CulpritWatchTest, NameDoesNotFlapAroundTheShareOfAStep) {
  shape_.link = 0.2;
  Pass(20, 0.2);
  ASSERT_THAT(Named(), ElementsAre("worker worker-1"));

  for (int i = 0; i < 10; ++i) {
    Pass(10, 0.15);  // 14 % of a step
    Pass(10, 0.17);
  }

  EXPECT_EQ(news_.size(), 1U);
}

TEST_F(CulpritWatchTest, StepsOfMinutesAreComparedToo) {
  for (int i = 0; i < 10; ++i) {
    now_ += 60s;
    Pass(1, 0.5, 1);
    Pass(5, 0.5, 0);
  }

  EXPECT_THAT(Named(), ElementsAre("worker worker-1"));
}

TEST_F(CulpritWatchTest, FirstStepsNameNobody) {
  Pass(3, 0.5);

  EXPECT_THAT(Named(), IsEmpty());
}

TEST_F(CulpritWatchTest, WorkerThatHasGoneIsNamedNoMore) {
  Pass(20, 0.5);
  ASSERT_THAT(Named(), ElementsAre("worker worker-1"));

  watch_.Remove(WorkerId{1});
  for (int i = 0; i < CulpritWatch::kConfirmations; ++i) watch_.Update(now_ += 1s);

  EXPECT_THAT(Named(), IsEmpty());
}

TEST_F(CulpritWatchTest, NextProcessOfAWorkerCountsFromItsStart) {
  Pass(20, 0.5);
  costs_[WorkerId{1}] = {};

  Pass(10, 0.3);

  JobStatus status;
  status.workers = {{.worker = WorkerId{1}}};
  watch_.AddTo(status);
  EXPECT_THAT(status.workers[0].lateness_seconds, DoubleNear(0.2, 1e-6));
}

TEST_F(CulpritWatchTest, MembersHaveTheirTimesInTheStatus) {
  Pass(20, 0.5);
  JobStatus status;
  status.workers = {{.worker = WorkerId{0}}, {.worker = WorkerId{1}}};
  status.servers = {{.server = ServerId{1}}};

  watch_.AddTo(status);

  EXPECT_EQ(status.workers[0].lateness_seconds, 0);
  EXPECT_THAT(status.workers[1].lateness_seconds, DoubleNear(0.4, 1e-6));
  EXPECT_THAT(status.servers[0].step_seconds, DoubleNear(0.002, 1e-6));
  EXPECT_EQ(ToString(status.culprits.at(0)),
            "worker-1 holds the others up for 400.0 ms of each step (78 %)");
}

}  // namespace
}  // namespace pushpull
