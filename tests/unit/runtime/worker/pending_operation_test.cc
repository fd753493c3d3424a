// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/pending_operation.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr ServerId kAnn{0};
constexpr ServerId kBob{3};

// What is not there yet and will not come: no test waits for it.
Deadline Passed() {
  return Deadline(SteadyTime{});
}
Deadline Soon() {
  return Deadline::After(10s);
}

TEST(PendingOperationTest, DoneWhenAllPartsAreAnswered) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 2);
  operation.Expect(kBob, 1);

  operation.PartDone(kAnn);
  operation.PartDone(kBob);
  EXPECT_FALSE(operation.is_done());
  operation.PartDone(kAnn);

  EXPECT_TRUE(operation.is_done());
  EXPECT_TRUE(operation.Wait(Passed()).ok());
}

TEST(PendingOperationTest, PartsOfOneServerAddUp) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);
  operation.Expect(kAnn, 1);
  operation.Expect(kBob, 0);

  operation.PartDone(kAnn);
  EXPECT_EQ(operation.MissingServers(), "server-0");
  operation.PartDone(kAnn);

  EXPECT_TRUE(operation.is_done());
}

TEST(PendingOperationTest, UnexpectedAnswerIsIgnored) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);

  operation.PartDone(kBob);

  EXPECT_FALSE(operation.is_done());
}

TEST(PendingOperationTest, DeadlineNamesMissingServers) {
  PendingOperation operation("push of w step 3");
  operation.Expect(kAnn, 1);
  operation.Expect(kBob, 1);

  const absl::Status late = operation.Wait(Passed());
  for (const ServerId server : {kAnn, kBob}) operation.PartDone(server);

  EXPECT_EQ(late,
            absl::DeadlineExceededError(
                "push of w step 3: not done in time; no answer from server-0, server-3"));
  EXPECT_TRUE(operation.Wait(Passed()).ok());
}

TEST(PendingOperationTest, DeadlineWithoutPartsNamesNoServer) {
  PendingOperation operation("joining");

  EXPECT_EQ(operation.Wait(Passed()), absl::DeadlineExceededError("joining: not done in time"));
}

TEST(PendingOperationTest, FirstFailureCountsAndNamesTheOperation) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);

  operation.Fail(absl::AbortedError("rejoin"));
  operation.Fail(absl::InternalError("later"));
  operation.PartDone(kAnn);

  EXPECT_EQ(operation.Wait(Passed()), absl::AbortedError("push of w: rejoin"));
}

TEST(PendingOperationTest, DoneOperationCannotFail) {
  PendingOperation operation("leaving");

  operation.Finish();
  operation.Fail(absl::UnavailableError("the coordinator is gone"));

  EXPECT_TRUE(operation.Wait(Passed()).ok());
}

TEST(PendingOperationTest, HandlerIsCalledOnceWithoutALock) {
  std::vector<absl::Status> told;
  PendingOperation* self = nullptr;
  PendingOperation operation("push of w", [&](const absl::Status& status) {
    EXPECT_TRUE(self->is_done());
    told.push_back(status);
  });
  self = &operation;
  operation.Expect(kAnn, 1);
  EXPECT_THAT(told, IsEmpty());

  operation.PartDone(kAnn);
  operation.Finish();
  operation.Fail(absl::AbortedError("late"));

  EXPECT_THAT(told, ElementsAre(absl::OkStatus()));
}

TEST(PendingOperationTest, LastPartWakesAllWaitingThreads) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);
  std::vector<absl::Status> results(3, absl::UnknownError("not back"));
  std::vector<std::jthread> waiting;
  waiting.reserve(results.size());
  for (absl::Status& result : results)
    waiting.emplace_back([&operation, &result] { result = operation.Wait(Soon()); });

  operation.PartDone(kAnn);
  waiting.clear();

  EXPECT_THAT(results, ElementsAre(absl::OkStatus(), absl::OkStatus(), absl::OkStatus()));
}

TEST(PendingOperationTest, NoteReplacesTheMissingServers) {
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);
  const auto text = [&] {
    return std::string(operation.Wait(Deadline::After(Duration::zero())).message());
  };

  operation.SetNote("another tensor is missing");
  const std::string with_note = text();
  operation.SetNote("");

  EXPECT_EQ(with_note, "push of w: not done in time; another tensor is missing");
  EXPECT_EQ(text(), "push of w: not done in time; no answer from server-0");
}

TEST(PendingOperationTest, OnePartWithAGradientIsEnough) {
  PendingOperation pull("pull");
  PendingOperation push("push");

  push.NoteGradient(false);
  EXPECT_FALSE(push.has_gradient());
  push.NoteGradient(true);
  push.NoteGradient(false);

  EXPECT_TRUE(push.has_gradient());
  EXPECT_TRUE(pull.has_gradient());
}

TEST(PendingOperationTest, ErrorNamesTheWorkersThatAreAwaited) {
  const auto awaited = std::make_shared<AwaitedWorkers>();
  PendingOperation operation("push of w");
  operation.Expect(kAnn, 1);
  operation.SetAwaited(awaited);

  EXPECT_EQ(operation.Wait(Passed()).message(),
            "push of w: not done in time; no answer from server-0");
  awaited->Set({.missing = {WorkerId{1}, WorkerId{4}}, .what = "no gradient of tensor \"w\""});

  const absl::Status late = operation.Wait(Passed());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_EQ(
      late.message(),
      "push of w: not done in time; it waits for worker-1, worker-4: no gradient of tensor "
      "\"w\". They are alive: wait longer (timeout, step_timeout; None: as long as they are), "
      "or set spec.sync.onStall");
}

TEST(PendingOperationTest, WorkersAwaitedInAnotherStepAreNotNamed) {
  const auto awaited = std::make_shared<AwaitedWorkers>();
  PendingOperation operation(FrameType::kPush, std::make_shared<const std::string>("w"), Step{4});
  operation.SetAwaited(awaited);

  awaited->Set({.missing = {WorkerId{1}}, .what = "", .step = Step{3}});
  EXPECT_THAT(std::string(operation.Wait(Passed()).message()), Not(HasSubstr("worker-1")));
  awaited->Set({.missing = {WorkerId{1}}, .what = "", .step = Step{4}});

  EXPECT_THAT(std::string(operation.Wait(Passed()).message()), HasSubstr("worker-1"));
}

TEST(PendingOperationTest, WhatTheProgramNeedsToDoIsNotWaitedForWithoutALimit) {
  PendingOperation operation("push of w");
  operation.SetNeed("two tensors are not pushed", SteadyTime{});

  const absl::Status needed = operation.Wait(Deadline::After(24h));

  EXPECT_TRUE(absl::IsFailedPrecondition(needed));
  EXPECT_EQ(needed.message(),
            "push of w: this program keeps its own step waiting; two tensors are not pushed");
  operation.SetNeed("");
  EXPECT_TRUE(absl::IsDeadlineExceeded(operation.Wait(Passed())));
}

}  // namespace
}  // namespace pushpull
