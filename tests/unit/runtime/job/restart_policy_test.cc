// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/restart_policy.h"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

RestartRule OnCodes(std::vector<int> codes, RestartAction action) {
  return {.exit_codes = ExitCodeMatch{.in = std::move(codes)}, .action = action};
}

RestartRule OnReason(ExitReason reason, RestartAction action) {
  return {.reason = reason, .action = action};
}

// The action for an exit of a job that has not restarted anything yet.
ExitAction ActionOf(const MemberExit& exit, std::vector<RestartRule> rules = {}) {
  return DecideAfterExit({.rules = std::move(rules)}, exit, {}).action;
}

TEST(DecideAfterExitTest, AWorkerThatExitsWithZeroIsDone) {
  const ExitDecision decision =
      DecideAfterExit({}, {.exit_code = 0}, {.counted = 6, .in_a_row = 2});

  EXPECT_EQ(decision.action, ExitAction::kDone);
  EXPECT_EQ(decision.history.counted, 6);
}

TEST(DecideAfterExitTest, AServerMustNotEndWhileTheJobRuns) {
  EXPECT_EQ(ActionOf({.role = JobRole::kServer, .exit_code = 0}), ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf({.role = JobRole::kCoordinator, .exit_code = 0}), ExitAction::kRestartPod);
}

// Python's argparse ends with 2, and a shell gives 126 and 127 for what it cannot run.
TEST(DecideAfterExitTest, NoExitCodeAloneIsFinal) {
  for (const JobRole role : {JobRole::kWorker, JobRole::kServer, JobRole::kCoordinator}) {
    for (const int code : {1, 2, 3, 126, 127, 128, 255})
      EXPECT_EQ(ActionOf({.role = role, .exit_code = code}), ExitAction::kRestartPod) << code;
  }
}

TEST(DecideAfterExitTest, AnEndThatSaysSoIsFinal) {
  const auto decide = [](const MemberExit& exit) { return DecideAfterExit({}, exit, {}); };

  const ExitDecision usage = decide({.exit_code = 2, .is_final = true});
  const ExitDecision file = decide({.exit_code = 3, .is_final = true});
  const ExitDecision other = decide({.role = JobRole::kServer, .exit_code = 7, .is_final = true});

  for (const ExitDecision* decision : {&usage, &file, &other})
    EXPECT_EQ(decision->action, ExitAction::kFailJob);
  EXPECT_EQ(usage.job_exit_code, 2);
  EXPECT_EQ(file.job_exit_code, 3);
  EXPECT_EQ(other.job_exit_code, 1);
  EXPECT_EQ(usage.text, "exited with code 2; the job fails without a restart");
}

TEST(DecideAfterExitTest, AProgramMayAskForARestartOfAllMembers) {
  const RestartSpec spec{.backoff_limit = 2};

  const ExitDecision first = DecideAfterExit(spec, {.exit_code = 1, .restarts_job = true}, {});
  const ExitDecision third = DecideAfterExit(
      spec, {.exit_code = 1, .restarts_job = true}, RestartHistory{.job_counted = 2});

  EXPECT_EQ(first.action, ExitAction::kRestartJob);
  EXPECT_EQ(first.history.job_counted, 1);
  EXPECT_EQ(third.action, ExitAction::kFailJob);
}

TEST(DecideAfterExitTest, AProgramThatCannotBeStartedIsFinal) {
  const ExitDecision decision = DecideAfterExit({}, {.exit_code = 128, .has_started = false}, {});

  EXPECT_EQ(decision.action, ExitAction::kFailJob);
  EXPECT_EQ(decision.job_exit_code, 3);
  EXPECT_EQ(decision.text, "could not be started; the job fails without a restart");
}

// A program's error before the first step of the job.
MemberExit EarlyExit(const std::string& line, int code = 1) {
  return {.exit_code = code, .precedes_training = true, .line = line};
}

// The decisions about the ends of one worker, one after the other.
std::vector<ExitDecision> DecideAll(const std::vector<MemberExit>& exits,
                                    const RestartSpec& spec = {},
                                    const std::vector<std::string>& others = {}) {
  std::vector<ExitDecision> decisions;
  RestartHistory history;
  for (const MemberExit& exit : exits) {
    decisions.push_back(DecideAfterExit(spec, exit, history, others));
    history = decisions.back().history;
  }
  return decisions;
}

TEST(DecideAfterExitTest, AProgramThatEndsAlikeTwiceBeforeAnyStepCannotRun) {
  const std::vector<ExitDecision> decisions =
      DecideAll({EarlyExit("NameError: x"), EarlyExit("NameError: x")});

  EXPECT_EQ(decisions[0].action, ExitAction::kRestartPod);
  EXPECT_EQ(decisions[1].action, ExitAction::kFailJob);
  EXPECT_EQ(decisions[1].job_exit_code, 1);
  EXPECT_FALSE(decisions[1].is_limit_reached);
  EXPECT_EQ(decisions[1].text,
            "exited with code 1 before the job's first step, as in the try before; the job fails "
            "because its program cannot run");
}

TEST(DecideAfterExitTest, WorkersThatFailInTheirFirstStepInTurnCannotRun) {
  // Each ends while another one still computes.
  MemberExit exit = EarlyExit("RuntimeError: x");
  exit.is_pending = true;
  const std::string mark = DecideAll({exit})[0].history.last_end;

  EXPECT_EQ(DecideAll({exit, exit}, {}, {mark, ""})[1].action, ExitAction::kFailJob);
  EXPECT_EQ(DecideAll({exit, exit}, {}, {"", ""})[1].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, WithoutALineTheExitCodeDecides) {
  EXPECT_EQ(DecideAll({EarlyExit(""), EarlyExit("")})[1].action, ExitAction::kFailJob);
  EXPECT_EQ(DecideAll({EarlyExit(""), EarlyExit("", 2)})[1].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, AWorkerThatEndsDifferentlyIsALostWorker) {
  MemberExit killed = EarlyExit("NameError: x");
  killed.signal = 9;
  MemberExit container_killed = EarlyExit("NameError: x", 137);
  MemberExit no_memory = EarlyExit("NameError: x");
  no_memory.reason = ExitReason::kOomKilled;
  MemberExit no_step_of_its_own = EarlyExit("NameError: x");
  no_step_of_its_own.precedes_training = false;

  for (const MemberExit& other :
       {EarlyExit("no route to host"), EarlyExit("NameError: x", 3), killed, no_memory})
    EXPECT_EQ(DecideAll({EarlyExit("NameError: x"), other})[1].action, ExitAction::kRestartPod);
  for (const MemberExit& lost : {killed, container_killed, no_memory, no_step_of_its_own})
    EXPECT_EQ(DecideAll({lost, lost, lost})[2].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, AServerThatEndsAlikeIsRestarted) {
  MemberExit server = EarlyExit("address in use");
  server.role = JobRole::kServer;

  EXPECT_EQ(DecideAll({server, server})[1].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, AnotherWorkersOtherEndSaysThatTheProgramCanRun) {
  const std::vector<MemberExit> twice = {EarlyExit("NameError: x"), EarlyExit("NameError: x")};
  const std::string same = DecideAll({twice[0]})[0].history.last_end;
  const std::string other = DecideAll({EarlyExit("no GPU")})[0].history.last_end;

  EXPECT_EQ(DecideAll(twice, {}, {same, ""})[1].action, ExitAction::kFailJob);
  EXPECT_EQ(DecideAll(twice, {}, {same, other})[1].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, ADisruptionBetweenTwoTriesSaysNothing) {
  const MemberExit evicted{.reason = ExitReason::kEvicted, .precedes_training = true};

  EXPECT_EQ(DecideAll({EarlyExit("NameError: x"), evicted, EarlyExit("NameError: x")})[2].action,
            ExitAction::kFailJob);
}

TEST(DecideAfterExitTest, ARuleAllowsMoreTries) {
  const RestartSpec spec{.rules = {OnCodes({1}, RestartAction::kRestartPod)}};

  EXPECT_EQ(DecideAll({EarlyExit("not yet"), EarlyExit("not yet")}, spec)[1].action,
            ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, AWorkerThatSaysTwiceThatItCannotJoinIsLeftOut) {
  const MemberExit cannot{
      .exit_code = 1, .is_final = true, .is_pending = true, .line = "begins at step 0 only"};
  MemberExit other = cannot;
  other.line = "no room";

  const std::vector<ExitDecision> decisions = DecideAll({cannot, cannot});

  EXPECT_EQ(decisions[0].action, ExitAction::kRestartPod);
  EXPECT_EQ(decisions[0].text,
            "exited with code 1 before its first step; restart, not counted, in 10 s");
  EXPECT_EQ(decisions[1].action, ExitAction::kIgnore);
  EXPECT_EQ(decisions[1].text, "cannot join; the job goes on without it");
  EXPECT_EQ(DecideAll({cannot, other})[1].action, ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, APendingMemberNeverFailsTheJob) {
  for (const MemberExit& exit : {MemberExit{.exit_code = 3},
                                 MemberExit{.exit_code = 2, .is_final = true},
                                 MemberExit{.exit_code = 128, .has_started = false}}) {
    MemberExit pending = exit;
    pending.is_pending = true;

    const ExitDecision decision = DecideAfterExit({.backoff_limit = 0}, pending, {});

    EXPECT_EQ(decision.action, ExitAction::kRestartPod);
    EXPECT_EQ(decision.history.counted, 0);
    EXPECT_THAT(decision.text, testing::HasSubstr("before its first step; restart, not counted"));
  }
}

TEST(DecideAfterExitTest, APendingServerWaitsLongerEachTime) {
  RestartHistory history;
  std::vector<int64_t> delays;
  for (int i = 0; i < 6; ++i) {
    const ExitDecision decision = DecideAfterExit(
        {}, {.role = JobRole::kServer, .exit_code = 3, .is_pending = true}, history);
    delays.push_back(decision.delay.count());
    history = decision.history;
  }

  EXPECT_THAT(delays, ElementsAre(10, 20, 40, 80, 160, 300));
}

TEST(DecideAfterExitTest, OtherCodesAndSignalsRestart) {
  EXPECT_EQ(ActionOf({.exit_code = 1}), ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf({.exit_code = 255}), ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf({.signal = 9}), ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf({.signal = 2}), ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, TheJobFailsWhenTheLimitIsReached) {
  const RestartSpec spec{.backoff_limit = 3};
  RestartHistory history;
  std::vector<ExitAction> actions;
  for (int i = 0; i < 4; ++i) {
    const ExitDecision decision = DecideAfterExit(spec, {.exit_code = 1}, history);
    actions.push_back(decision.action);
    history = decision.history;
  }

  EXPECT_THAT(actions,
              ElementsAre(ExitAction::kRestartPod,
                          ExitAction::kRestartPod,
                          ExitAction::kRestartPod,
                          ExitAction::kFailJob));
  EXPECT_EQ(history.counted, 3);
}

TEST(DecideAfterExitTest, ALimitOfZeroAllowsNoRestart) {
  const ExitDecision decision =
      DecideAfterExit({.backoff_limit = 0}, {.role = JobRole::kServer, .signal = 9}, {});

  EXPECT_EQ(decision.action, ExitAction::kFailJob);
  EXPECT_EQ(decision.job_exit_code, 1);
  EXPECT_EQ(
      decision.text,
      "was ended by signal 9 (SIGKILL); the job fails, spec.restart.backoffLimit (0) is reached "
      "for this member");
}

TEST(DecideAfterExitTest, DelaysDoubleUpToTheirMaximum) {
  const RestartSpec spec{.backoff_limit = 100};
  RestartHistory history;
  std::vector<int64_t> delays;
  for (int i = 0; i < 7; ++i) {
    const ExitDecision decision = DecideAfterExit(spec, {.exit_code = 1}, history);
    delays.push_back(decision.delay.count());
    history = decision.history;
  }

  EXPECT_THAT(delays, ElementsAre(10, 20, 40, 80, 160, 300, 300));
}

TEST(DecideAfterExitTest, CoordinatorAndServersNeverWaitLong) {
  for (const JobRole role : {JobRole::kCoordinator, JobRole::kServer}) {
    const RestartSpec spec{.backoff_limit = 100};
    RestartHistory history;
    for (int i = 0; i < 10; ++i) {
      const ExitDecision decision =
          DecideAfterExit(spec, {.role = role, .signal = 9, .ran_for = seconds(10)}, history);
      EXPECT_EQ(decision.action, ExitAction::kRestartPod);
      EXPECT_LE(decision.delay, seconds(5)) << i;
      history = decision.history;
    }
  }
}

TEST(DecideAfterExitTest, AShorterDelayIsKeptForServersToo) {
  const RestartSpec spec{.initial_delay = seconds(1)};

  EXPECT_EQ(DecideAfterExit(spec, {.role = JobRole::kServer, .signal = 9}, {}).delay, seconds(1));
}

TEST(DecideAfterExitTest, ARestartOfTheWholeJobHasTheRulesDelay) {
  const RestartSpec spec{.rules = {OnCodes({1}, RestartAction::kRestartJob)}};

  EXPECT_EQ(DecideAfterExit(spec, {.role = JobRole::kServer, .exit_code = 1}, {}).delay,
            seconds(10));
}

TEST(DecideAfterExitTest, AHealthyMembersDelaysStartAnew) {
  const RestartHistory history{.counted = 2, .in_a_row = 2};
  const RestartSpec spec{.healthy_after = seconds(120)};

  const ExitDecision just_healthy =
      DecideAfterExit(spec, {.exit_code = 1, .ran_for = seconds(120)}, history);
  const ExitDecision not_quite =
      DecideAfterExit(spec, {.exit_code = 1, .ran_for = seconds(119)}, history);

  EXPECT_EQ(just_healthy.delay, seconds(10));
  EXPECT_EQ(just_healthy.history.in_a_row, 1);
  EXPECT_EQ(just_healthy.history.counted, 3);
  EXPECT_EQ(not_quite.delay, seconds(40));
}

TEST(DecideAfterExitTest, NoDelayIsPossible) {
  const RestartSpec spec{.initial_delay = seconds(0), .max_delay = seconds(0)};

  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 1}, {.counted = 0, .in_a_row = 1000}).delay,
            seconds(0));
}

TEST(DecideAfterExitTest, DisruptionsAreReplacedWithoutBeingCounted) {
  for (const ExitReason reason :
       {ExitReason::kEvicted, ExitReason::kPreempted, ExitReason::kNodeLost}) {
    const ExitDecision decision = DecideAfterExit(
        {.backoff_limit = 1}, {.exit_code = 2, .reason = reason}, {.counted = 1, .in_a_row = 0});

    EXPECT_EQ(decision.action, ExitAction::kRestartPod);
    EXPECT_EQ(decision.history.counted, 1);
  }
}

TEST(DecideAfterExitTest, TheFirstMatchingRuleDecides) {
  const std::vector<RestartRule> rules{OnCodes({42}, RestartAction::kIgnore),
                                       OnCodes({42, 43}, RestartAction::kFailJob)};

  EXPECT_EQ(ActionOf({.exit_code = 42}, rules), ExitAction::kIgnore);
  EXPECT_EQ(ActionOf({.exit_code = 43}, rules), ExitAction::kFailJob);
  EXPECT_EQ(ActionOf({.exit_code = 44}, rules), ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, ARuleStandsAboveWhatAProgramSays) {
  const MemberExit final_end{.exit_code = 3, .is_final = true};
  const MemberExit pending{.exit_code = 3, .is_pending = true};

  EXPECT_EQ(ActionOf(final_end, {OnCodes({3}, RestartAction::kRestartPod)}),
            ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf(pending, {OnCodes({3}, RestartAction::kFailJob)}), ExitAction::kFailJob);
}

TEST(DecideAfterExitTest, ARuleOfARoleConcernsThatRoleAlone) {
  RestartRule rule = OnCodes({1}, RestartAction::kFailJob);
  rule.role = JobRole::kServer;

  EXPECT_EQ(ActionOf({.role = JobRole::kServer, .exit_code = 1}, {rule}), ExitAction::kFailJob);
  EXPECT_EQ(ActionOf({.role = JobRole::kWorker, .exit_code = 1}, {rule}), ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, ASignalIsACodeAbove128) {
  EXPECT_EQ(ActionOf({.signal = 9}, {OnCodes({137}, RestartAction::kFailJob)}),
            ExitAction::kFailJob);
  EXPECT_EQ(ActionOf({.exit_code = 9}, {OnCodes({137}, RestartAction::kFailJob)}),
            ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, NotInMatchesEveryOtherCode) {
  const RestartRule rule{.exit_codes = ExitCodeMatch{.not_in = {1, 2}},
                         .action = RestartAction::kFailJob};

  EXPECT_EQ(ActionOf({.exit_code = 1}, {rule}), ExitAction::kRestartPod);
  EXPECT_EQ(ActionOf({.exit_code = 7}, {rule}), ExitAction::kFailJob);
  EXPECT_EQ(ActionOf({.exit_code = 0}, {rule}), ExitAction::kDone);
}

TEST(DecideAfterExitTest, ErrorIsTheReasonWhereNoneWasGiven) {
  const RestartRule rule = OnReason(ExitReason::kError, RestartAction::kFailJob);

  EXPECT_EQ(ActionOf({.exit_code = 1}, {rule}), ExitAction::kFailJob);
  EXPECT_EQ(ActionOf({.exit_code = 137, .reason = ExitReason::kOomKilled}, {rule}),
            ExitAction::kRestartPod);
}

TEST(DecideAfterExitTest, RestartsOfTheWholeJobHaveALimitOfTheirOwn) {
  const RestartSpec spec{.backoff_limit = 5, .rules = {OnCodes({1}, RestartAction::kRestartJob)}};

  const ExitDecision fifth =
      DecideAfterExit(spec, {.exit_code = 1}, {.counted = 5, .job_counted = 4});
  const ExitDecision sixth = DecideAfterExit(spec, {.exit_code = 1}, fifth.history);

  EXPECT_EQ(fifth.action, ExitAction::kRestartJob);
  EXPECT_EQ(fifth.history.job_counted, 5);
  EXPECT_EQ(fifth.history.counted, 5);
  EXPECT_EQ(sixth.action, ExitAction::kFailJob);
  EXPECT_TRUE(sixth.is_limit_reached);
  EXPECT_EQ(sixth.text,
            "exited with code 1; the job fails, spec.restart.backoffLimit (5) is reached for all "
            "members");
}

TEST(DecideAfterExitTest, TheTextNamesTheCauseAndWhatHappensNext) {
  const auto text = [](const MemberExit& exit) {
    return DecideAfterExit({}, exit, {.counted = 1, .in_a_row = 1}).text;
  };

  EXPECT_EQ(text({.exit_code = 1}), "exited with code 1; restart, 2 of 6, in 20 s");
  EXPECT_EQ(text({.exit_code = 137, .reason = ExitReason::kOomKilled}),
            "ended: OOMKilled; restart, 2 of 6, in 20 s");
  EXPECT_EQ(text({.reason = ExitReason::kPreempted}),
            "ended: Preempted; restart, not counted, in 20 s");
}

TEST(DecideAfterExitTest, ARoleHasALimitOfItsOwn) {
  const RestartSpec spec{.backoff_limit = 5,
                         .role_limits = {.servers = 20, .workers = 1, .coordinator = 0}};
  const auto decide = [&spec](JobRole role, int counted) {
    return DecideAfterExit(spec, {.role = role, .exit_code = 1}, {.counted = counted});
  };

  EXPECT_EQ(decide(JobRole::kServer, 19).action, ExitAction::kRestartPod);
  EXPECT_EQ(decide(JobRole::kServer, 20).action, ExitAction::kFailJob);
  EXPECT_EQ(decide(JobRole::kWorker, 0).text, "exited with code 1; restart, 1 of 1, in 10 s");
  EXPECT_EQ(decide(JobRole::kWorker, 1).text,
            "exited with code 1; the job fails, spec.restart.roleLimits.workers (1) is reached for "
            "this member");
  EXPECT_TRUE(decide(JobRole::kWorker, 1).is_limit_reached);
  EXPECT_EQ(decide(JobRole::kCoordinator, 0).action, ExitAction::kFailJob);
  EXPECT_EQ(BackoffLimitOf(spec, JobRole::kServer), 20);
  EXPECT_EQ(BackoffLimitOf({.backoff_limit = 5}, JobRole::kServer), 5);
}

TEST(DecideAfterExitTest, RestartsOfAllAtOnceHaveNoRolesLimit) {
  const RestartSpec spec{.backoff_limit = 2,
                         .role_limits = {.workers = 0},
                         .rules = {OnCodes({1}, RestartAction::kRestartJob)}};

  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 1}, {.job_counted = 1}).action,
            ExitAction::kRestartJob);
  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 1}, {.job_counted = 2}).action,
            ExitAction::kFailJob);
}

TEST(DecideAfterExitTest, ThePolicySaysWhoseEndIsTheJobsSuccess) {
  const auto action = [](SuccessPolicy policy, int index) {
    return DecideAfterExit({.success_policy = policy}, {.index = index, .exit_code = 0}, {}).action;
  };

  EXPECT_EQ(action(SuccessPolicy::kAllWorkers, 0), ExitAction::kDone);
  EXPECT_EQ(action(SuccessPolicy::kWorker0, 0), ExitAction::kSucceedJob);
  EXPECT_EQ(action(SuccessPolicy::kWorker0, 1), ExitAction::kDone);
  EXPECT_EQ(action(SuccessPolicy::kAnyWorker, 1), ExitAction::kSucceedJob);
}

// An ignored worker has not succeeded, and a server never does.
TEST(DecideAfterExitTest, OnlyAWorkersZeroIsASuccess) {
  const RestartSpec spec{.rules = {OnCodes({9}, RestartAction::kIgnore)},
                         .success_policy = SuccessPolicy::kAnyWorker};

  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 9}, {}).action, ExitAction::kIgnore);
  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 1}, {}).action, ExitAction::kRestartPod);
  EXPECT_EQ(DecideAfterExit(spec, {.role = JobRole::kServer, .exit_code = 0}, {}).action,
            ExitAction::kRestartPod);
  EXPECT_EQ(DecideAfterExit(spec, {.exit_code = 0, .reason = ExitReason::kEvicted}, {}).action,
            ExitAction::kRestartPod);
}

}  // namespace
}  // namespace pushpull
