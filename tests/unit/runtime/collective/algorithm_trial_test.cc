// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_trial.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

// Makes calls that take as long as `seconds` says for their algorithm, and returns how many each
// algorithm has made until the trial is over.
std::map<Algorithm, int> RunTrial(AlgorithmTrial& trial,
                                  const std::map<Algorithm, double>& seconds) {
  std::map<Algorithm, int> calls;
  while (!trial.is_over()) {
    const Algorithm algorithm = trial.next();
    // The first call of each is slow, as a connection's first bytes are.
    trial.Add(calls[algorithm]++ == 0 ? 100 : seconds.at(algorithm));
    if (!trial.due().empty()) trial.Conclude();
  }
  return calls;
}

TEST(AlgorithmTrialTest, TheFastestIsChosenAndTheSlowAreGivenUpEarly) {
  AlgorithmTrial trial({Algorithm::kRing, Algorithm::kTree, Algorithm::kRoot, Algorithm::kHost});

  const std::map<Algorithm, int> calls = RunTrial(trial,
                                                  {{Algorithm::kRing, 1.1},
                                                   {Algorithm::kTree, 1},
                                                   {Algorithm::kRoot, 2},
                                                   {Algorithm::kHost, 5}});

  EXPECT_EQ(trial.next(), Algorithm::kTree);
  EXPECT_EQ(calls.at(Algorithm::kHost), 4);
  EXPECT_EQ(calls.at(Algorithm::kRoot), 4 + 6);
  EXPECT_EQ(calls.at(Algorithm::kRing), 4 + 6 + 16);
  ASSERT_EQ(trial.results().size(), 2U);
  EXPECT_EQ(trial.results()[0].algorithm, Algorithm::kTree);
  EXPECT_EQ(trial.results()[1].seconds, 1.1);
}

TEST(AlgorithmTrialTest, ShortCallsAreTriedInMoreRounds) {
  AlgorithmTrial short_calls({Algorithm::kRing, Algorithm::kTree});
  AlgorithmTrial shortest_calls({Algorithm::kRing, Algorithm::kTree});

  // 19 rounds of 5.1 milliseconds take a tenth of a second.
  EXPECT_EQ(RunTrial(short_calls, {{Algorithm::kRing, 2.6e-3}, {Algorithm::kTree, 2.5e-3}}),
            (std::map<Algorithm, int>{{Algorithm::kRing, 4 + 19 + 19}, {Algorithm::kTree, 42}}));
  EXPECT_EQ(RunTrial(shortest_calls, {{Algorithm::kRing, 1e-6}, {Algorithm::kTree, 1.1e-6}}),
            (std::map<Algorithm, int>{{Algorithm::kRing, 4 + 48 + 128}, {Algorithm::kTree, 180}}));
}

TEST(AlgorithmTrialTest, AFewDisturbedCallsDoNotCount) {
  AlgorithmTrial trial({Algorithm::kRing, Algorithm::kTree});
  int calls = 0;
  while (!trial.is_over()) {
    const double seconds = trial.next() == Algorithm::kTree ? 1 : 1.2;
    // Every seventh call: of the one and the other.
    trial.Add(++calls % 7 == 0 ? 50 : seconds);
    if (!trial.due().empty()) trial.Conclude();
  }

  EXPECT_EQ(trial.next(), Algorithm::kTree);
}

TEST(AlgorithmTrialTest, OneCandidateNeedsNoTrial) {
  AlgorithmTrial trial({Algorithm::kSplit});

  EXPECT_TRUE(trial.is_over());
  EXPECT_EQ(trial.next(), Algorithm::kSplit);
}

}  // namespace
}  // namespace pushpull
