// SPDX-License-Identifier: Apache-2.0
#include "operator/lease/leader_elector.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::Deadline;
using pushpull::SteadyTime;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

const ObjectKey kLease{.object_namespace = "ops", .name = "pushpull-operator"};
const ResourceType kPods{.version = "v1", .plural = "pods"};

// One operator with a clock of its own.
class Operator {
 public:
  Operator(FakeApiServer& server, const std::string& name, std::chrono::seconds wall_offset = {})
      : credentials_(*Credentials::Create(server.access(), time)),
        lease_client_(*credentials_, time, {}),
        elector(lease_client_,
                time,
                {.lease = kLease,
                 .identity = name,
                 .wall_clock = [=] { return std::chrono::system_clock::now() + wall_offset; }}),
        client(*credentials_, time, {.may_write = [this] { return elector.MayWrite(); }}) {}

  // Runs until `at_pause` has cancelled it or the lease is lost. `at_pause` gets the pause's
  // number.
  absl::Status Run(const std::function<void(int)>& at_pause) {
    int pauses = 0;
    time.OnPause([&] { at_pause(++pauses); });
    absl::Status status = elector.Run([this] { led_at = time.Now(); }, cancellation);
    time.OnPause(nullptr);
    return status;
  }
  // Runs until it has led for `pauses` pauses, then stops where it is, as a process that is killed.
  absl::Status LeadAndDie(int pauses) {
    return Run([this, pauses, led = 0](int) mutable {
      if (elector.is_leader() && ++led >= pauses) cancellation.Cancel();
    });
  }

  FakePausingTime time;
  Cancellation cancellation;
  SteadyTime led_at;

 private:
  std::unique_ptr<Credentials> credentials_;
  KubeClient lease_client_;

 public:
  LeaderElector elector;
  KubeClient client;
};

std::string HolderOf(const FakeApiServer& server) {
  return server.Find(LeaseType(), kLease)["spec"]["holderIdentity"];
}

TEST(LeaderElectorTest, TheFirstCandidateLeadsAndRenews) {
  FakeApiServer server;
  Operator first(server, "first");

  EXPECT_TRUE(absl::IsCancelled(first.LeadAndDie(20)));

  EXPECT_EQ(HolderOf(server), "first");
  EXPECT_TRUE(first.elector.is_leader());
  // One write each 2 s, and no reads but of what was there before and what was made.
  EXPECT_EQ(server.CountRequests("PUT"), 19);
  EXPECT_EQ(server.CountRequests("GET"), 2);
}

TEST(LeaderElectorTest, AStandbyLeadsWithin17SecondsOfAKill) {
  for (const auto offset : {minutes(-10), minutes(0), minutes(10)}) {
    FakeApiServer server;
    Operator first(server, "first");
    first.LeadAndDie(3).IgnoreError();
    Operator second(server, "second", offset);
    const SteadyTime begin = second.time.Now();

    second.LeadAndDie(1).IgnoreError();

    EXPECT_EQ(HolderOf(server), "second");
    EXPECT_LE(second.led_at - begin, seconds(17));
    EXPECT_GE(second.led_at - begin, seconds(15));
    EXPECT_EQ(server.Find(LeaseType(), kLease)["spec"]["leaseTransitions"], 1);
  }
}

TEST(LeaderElectorTest, AReleasedLeaseIsAcquiredWithin2Seconds) {
  FakeApiServer server;
  Operator first(server, "first");
  Operator second(server, "second");
  first.LeadAndDie(3).IgnoreError();
  SteadyTime released;

  second
      .Run([&](int pause) {
        if (pause == 2) {
          EXPECT_TRUE(first.elector.Release(Deadline(first.time.Now() + seconds(1))).ok());
          released = second.time.Now();
        }
        if (second.elector.is_leader()) second.cancellation.Cancel();
      })
      .IgnoreError();

  EXPECT_EQ(HolderOf(server), "second");
  EXPECT_LE(second.led_at - released, seconds(2));
  EXPECT_FALSE(first.elector.is_leader());
}

// As when a release is uninstalled, and installed anew before the old operator has ended.
TEST(LeaderElectorTest, ALeaseThatIsGoneOrAnothersNeedsNoRelease) {
  for (const bool has_successor : {false, true}) {
    FakeApiServer server;
    Operator first(server, "first");
    first.LeadAndDie(3).IgnoreError();
    server.Remove(LeaseType(), kLease);
    if (has_successor) {
      Operator second(server, "second");
      second.LeadAndDie(1).IgnoreError();
    }

    EXPECT_TRUE(first.elector.Release(Deadline(first.time.Now() + seconds(1))).ok());

    const bool is_gone = server.Find(LeaseType(), kLease).is_null();
    EXPECT_EQ(is_gone ? "gone" : HolderOf(server), has_successor ? "second" : "gone");
  }
}

TEST(LeaderElectorTest, ALeaderWhoseLeaseIsDeletedSaysSo) {
  FakeApiServer server;
  Operator first(server, "first");

  const absl::Status status = first.Run([&](int pause) {
    if (pause == 3) server.Remove(LeaseType(), kLease);
  });

  EXPECT_THAT(std::string(status.message()), HasSubstr("is lost: it was deleted"));
}

TEST(LeaderElectorTest, ALeaseThatSomebodyHasLabelledIsReleased) {
  FakeApiServer server;
  Operator first(server, "first");
  first.LeadAndDie(3).IgnoreError();
  json lease = server.Find(LeaseType(), kLease);
  lease["metadata"]["labels"]["team"] = "a";
  server.Put(LeaseType(), kLease, lease);

  EXPECT_TRUE(first.elector.Release(Deadline(first.time.Now() + seconds(1))).ok());

  EXPECT_EQ(HolderOf(server), "");
}

TEST(LeaderElectorTest, APausedLeaderWritesNothingAfterResuming) {
  FakeApiServer server;
  Operator first(server, "first");
  Operator second(server, "second");
  int writes = 0;

  const absl::Status status = first.Run([&](int pause) {
    if (pause != 3) return;
    ASSERT_TRUE(first.client
                    .Create(kPods,
                            "n",
                            R"({"metadata":{"name":"before"}})",
                            DryRun::kNo,
                            Deadline(first.time.Now() + seconds(5)))
                    .ok());
    first.time.Advance(seconds(30));  // SIGSTOP; meanwhile
    second.LeadAndDie(1).IgnoreError();
    writes = server.CountRequests("POST") + server.CountRequests("PUT");
    EXPECT_TRUE(absl::IsFailedPrecondition(first.client
                                               .Create(kPods,
                                                       "n",
                                                       R"({"metadata":{"name":"after"}})",
                                                       DryRun::kNo,
                                                       Deadline(first.time.Now() + seconds(5)))
                                               .status()));
  });

  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(server.CountRequests("POST") + server.CountRequests("PUT"), writes);
  EXPECT_EQ(HolderOf(server), "second");
}

TEST(LeaderElectorTest, AnIsolatedLeaderStepsDownInTime) {
  FakeApiServer server;
  Operator first(server, "first");
  SteadyTime gone;

  const absl::Status status = first.Run([&](int pause) {
    if (pause != 3) return;
    gone = first.time.Now();
    server.InjectFaults([](const FakeRequest&) { return Fault{Fault::Kind::kDropBefore}; });
  });

  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_LE(first.time.Now() - gone, seconds(12));
  EXPECT_FALSE(first.elector.is_leader());
}

TEST(LeaderElectorTest, ALeaderSurvivesShortFaults) {
  FakeApiServer server;
  Operator first(server, "first");
  const auto fault = [&server](const Fault& fault_now) {
    auto left = std::make_shared<std::atomic<int>>(1);
    server.InjectFaults([=](const FakeRequest& request) {
      return request.method == "PUT" && (*left)-- > 0 ? fault_now : Fault{};
    });
  };

  const absl::Status status = first.Run([&](int pause) {
    if (pause == 3) fault({.kind = Fault::Kind::kDropBefore});
    if (pause == 6) fault({.kind = Fault::Kind::kDropAfter});  // the second try is a conflict
    if (pause == 9) fault({.kind = Fault::Kind::kAnswer, .code = 429, .retry_after_seconds = 2});
    if (pause == 12) fault({.kind = Fault::Kind::kAnswer, .code = 500});
    if (pause == 20) first.cancellation.Cancel();
  });

  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(first.elector.is_leader());
}

TEST(LeaderElectorTest, UnknownLeaseFieldsAreKept) {
  FakeApiServer server;
  server.Put(LeaseType(),
             kLease,
             {{"metadata", {{"labels", {{"team", "ml"}}}}}, {"spec", {{"strategy", "x"}}}});
  Operator first(server, "first");

  first.LeadAndDie(2).IgnoreError();

  const json lease = server.Find(LeaseType(), kLease);
  EXPECT_EQ(lease["metadata"]["labels"]["team"], "ml");
  EXPECT_EQ(lease["spec"]["strategy"], "x");
  EXPECT_EQ(lease["spec"]["holderIdentity"], "first");
}

TEST(LeaderElectorTest, RefusalsAreRetriedAtTheRetryPeriod) {
  FakeApiServer server;
  server.InjectFaults([](const FakeRequest&) { return Fault{Fault::Kind::kAnswer, 403}; });
  Operator first(server, "first");

  first
      .Run([&](int pause) {
        if (pause == 10) first.cancellation.Cancel();
      })
      .IgnoreError();

  EXPECT_EQ(server.requests().size(), 10u);
  EXPECT_TRUE(absl::IsPermissionDenied(first.elector.last_error()));
}

TEST(LeaderElectorTest, InvalidOptionsAreRejectedUpFront) {
  FakeApiServer server;
  Operator nameless(server, "");

  EXPECT_TRUE(absl::IsInvalidArgument(nameless.Run([](int) {})));
  EXPECT_TRUE(server.requests().empty());
}

}  // namespace
}  // namespace pushpull_operator
