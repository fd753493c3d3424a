// SPDX-License-Identifier: Apache-2.0
//
// One session after the other, on a fake clock, with coordinators that say what the test wants.
#include "runtime/membership/reconnecting_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_executor.h"

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Every session that was opened; the test answers on them.
class Coordinators final : public SessionConnector {
 public:
  struct Call {
    SessionHandler* handler = nullptr;
    std::vector<FromMember> sent;
    bool is_over = false;
  };

  std::unique_ptr<Session> Connect(Executor&, SessionHandler& handler) override {
    calls.push_back(std::make_unique<Call>());
    calls.back()->handler = &handler;
    return std::make_unique<FakeSession>(*calls.back());
  }

  std::vector<std::unique_ptr<Call>> calls;

 private:
  class FakeSession final : public Session {
   public:
    explicit FakeSession(Call& call) : call_(call) {}
    ~FakeSession() override { call_.is_over = true; }
    void Send(FromMember message) override { call_.sent.push_back(std::move(message)); }

   private:
    Call& call_;
  };
};

class ReconnectingSessionTest : public testing::Test, public SessionHandler {
 protected:
  explicit ReconnectingSessionTest(ReconnectingSessionOptions options = {})
      : executor_(scheduler_),
        session_(
            options,
            coordinators_,
            executor_,
            *this,
            [](Term promised) { return RegisterServer{.promised = promised}; },
            Log("test", LogLevel::kError)) {}

  void OnMessage(ToMember message) override { received_.push_back(std::move(message)); }
  void OnClosed(const absl::Status& why) override { closed_.push_back(why); }

  Coordinators::Call& Last() { return *coordinators_.calls.back(); }
  void Welcomed(uint64_t term) { Last().handler->OnMessage(Welcome{.term = Term{term}}); }
  void Broken() { Last().handler->OnClosed(absl::UnavailableError("10.0.0.9:7170: gone")); }
  Term PromisedByLast() { return std::get<RegisterServer>(Last().sent.front()).promised; }

  SimScheduler scheduler_;
  SimExecutor executor_;
  Coordinators coordinators_;
  std::vector<ToMember> received_;
  std::vector<absl::Status> closed_;
  ReconnectingSession session_;
};

TEST_F(ReconnectingSessionTest, NoCoordinatorAtStartIsReportedAtOnce) {
  Broken();

  EXPECT_THAT(closed_, SizeIs(1));
}

// A member that is patient at the start.
class SearchingSessionTest : public ReconnectingSessionTest {
 protected:
  SearchingSessionTest() : ReconnectingSessionTest({.first_timeout = seconds(10)}) {}
};

TEST_F(SearchingSessionTest, LooksForACoordinatorUntilOneAnswers) {
  session_.Send(DrainRequest{});
  Broken();
  scheduler_.RunFor(seconds(2));
  Broken();
  scheduler_.RunFor(seconds(2));
  ASSERT_THAT(coordinators_.calls, SizeIs(3));
  EXPECT_THAT(closed_, IsEmpty());

  Welcomed(1);

  ASSERT_THAT(Last().sent, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<DrainRequest>(Last().sent.back()));
}

TEST_F(SearchingSessionTest, GivesUpWhenTheTimeIsOverNotAfterIt) {
  const std::chrono::milliseconds tick(10);
  const SteadyTime over = executor_.Now() + seconds(10);
  Broken();
  for (size_t attempts = 1; executor_.Now() < over + tick && closed_.empty();) {
    scheduler_.RunFor(tick);
    if (coordinators_.calls.size() == attempts) continue;
    attempts = coordinators_.calls.size();
    Broken();
  }

  EXPECT_THAT(closed_, SizeIs(1));
}

TEST_F(SearchingSessionTest, GivesUpAfterTheTimeoutAndSaysWhy) {
  for (int i = 0; i < 20 && closed_.empty(); ++i) {
    Broken();
    scheduler_.RunFor(seconds(1));
  }

  ASSERT_THAT(closed_, SizeIs(1));
  EXPECT_THAT(closed_.front().message(), HasSubstr("10.0.0.9:7170: gone; none answered within 10"));
}

// gRPC's words for a name server that is away, and for streams that something on the way has cut.
TEST_F(SearchingSessionTest, WhateverFailsOnTheWayIsTriedAgain) {
  for (const absl::Status& why : {absl::UnknownError("Stream removed"),
                                  absl::CancelledError("DNS query cancelled"),
                                  absl::InternalError("RST_STREAM with error code 2"),
                                  absl::DeadlineExceededError("Deadline Exceeded"),
                                  absl::ResourceExhaustedError("too many sessions")}) {
    Last().handler->OnClosed(why);
    scheduler_.RunFor(seconds(1));
  }

  EXPECT_THAT(closed_, IsEmpty());
  EXPECT_THAT(coordinators_.calls, SizeIs(6));
}

TEST_F(SearchingSessionTest, PeerThatIsNotUnderstoodIsReportedAtOnce) {
  Last().handler->OnClosed(absl::InvalidArgumentError("another version"));

  EXPECT_THAT(closed_, SizeIs(1));
}

TEST_F(ReconnectingSessionTest, ReconnectSendsThePromisedTerm) {
  Welcomed(4);
  Broken();
  EXPECT_FALSE(session_.is_open());

  scheduler_.RunFor(seconds(1));

  ASSERT_THAT(coordinators_.calls, SizeIs(2));
  EXPECT_EQ(PromisedByLast(), Term{4});
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(ReconnectingSessionTest, ClosesAfterTheCoordinatorTimeout) {
  Last().handler->OnMessage(
      Welcome{.term = Term{1}, .settings = {.coordinator_timeout = seconds(70)}});
  Broken();
  for (int i = 0; i < 100 && closed_.empty(); ++i) {
    scheduler_.RunFor(seconds(1));
    if (!coordinators_.calls.back()->is_over) Broken();
  }

  ASSERT_THAT(closed_, SizeIs(1));
  EXPECT_THAT(std::string(closed_.front().message()),
              testing::AllOf(HasSubstr("10.0.0.9:7170"), HasSubstr("70 s")));
}

TEST_F(ReconnectingSessionTest, CoordinatorOfLowerTermIsIgnored) {
  Welcomed(4);
  Broken();
  scheduler_.RunFor(seconds(1));
  received_.clear();

  Welcomed(3);
  scheduler_.RunUntilIdle();

  EXPECT_THAT(received_, IsEmpty());
  EXPECT_TRUE(Last().is_over);
  EXPECT_EQ(session_.promised(), Term{4});
}

TEST_F(ReconnectingSessionTest, StopOfLowerTermIsIgnored) {
  Welcomed(4);
  Broken();
  scheduler_.RunFor(seconds(1));
  received_.clear();

  Last().handler->OnMessage(Stop{absl::UnavailableError("the job fails"), Term{3}});
  scheduler_.RunFor(seconds(1));

  EXPECT_THAT(received_, IsEmpty());
  EXPECT_THAT(closed_, IsEmpty());
  EXPECT_THAT(coordinators_.calls, SizeIs(3));
}

TEST_F(ReconnectingSessionTest, NoReconnectAfterStop) {
  Welcomed(4);
  Last().handler->OnMessage(Stop{absl::OkStatus(), Term{4}});
  Broken();

  scheduler_.RunFor(seconds(10));

  EXPECT_THAT(coordinators_.calls, SizeIs(1));
  EXPECT_THAT(closed_, SizeIs(1));
}

TEST_F(ReconnectingSessionTest, UndeliveredFailureReachesTheNextCoordinator) {
  Welcomed(4);
  Broken();
  session_.Send(Heartbeat{});
  session_.Send(Failure{absl::DataLossError("NaN in w")});
  scheduler_.RunFor(seconds(1));

  Welcomed(5);

  ASSERT_THAT(Last().sent, SizeIs(2));
  EXPECT_EQ(std::get<Failure>(Last().sent.back()).status.message(), "NaN in w");
}

}  // namespace
}  // namespace pushpull
