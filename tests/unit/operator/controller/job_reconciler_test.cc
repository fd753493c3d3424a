// SPDX-License-Identifier: Apache-2.0
//
// What is decided, carried out against an API server over HTTP.
#include "operator/controller/job_reconciler.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "operator/children/tls_secret.h"
#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;

constexpr char kSpec[] = R"({"image":"i","servers":{"replicas":2},"checkpoint":{"claim":"c"}})";

bool IsIn(const PlayedCluster& cluster, Phase phase) {
  return cluster.Status().phase == phase;
}

bool IsPost(const FakeRequest& request, const std::string& plural) {
  return request.method == "POST" && request.path.ends_with("/" + plural);
}

// Without dry runs.
int CountPosts(const PlayedCluster& cluster, const std::string& plural) {
  int count = 0;
  for (const FakeRequest& request : cluster.server.requests())
    count += IsPost(request, plural) && !request.query.contains("dryRun") ? 1 : 0;
  return count;
}

std::string Say(const PlayedCluster& cluster, const std::string& type) {
  const std::vector<Condition> conditions = cluster.Status().conditions;
  const Condition* condition = FindCondition(conditions, type);
  if (condition == nullptr) return "none";
  return condition->status + " " + condition->reason;
}

TEST(JobReconcilerTest, ACacheThatIsBehindIsNotPlannedUpon) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.op->Step().ok());
  const int writes = cluster.num_writes();
  EXPECT_EQ(CountPosts(cluster, "pods"), 1);

  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cluster.op->ReconcileOnly().ok());

  EXPECT_EQ(cluster.num_writes(), writes);
}

// A job that runs, on nodes with these labels; its coordinator knows no racks.
void PutOnNodes(PlayedCluster& cluster, const std::map<std::string, json>& labels_of_nodes) {
  int server = 0;
  for (const auto& [node, labels] : labels_of_nodes) {
    const ResourceType type{.group = "", .version = "v1", .plural = "nodes"};
    cluster.server.Put(
        type, {.object_namespace = "", .name = node}, {{"metadata", {{"labels", labels}}}});
    const ObjectKey key{.object_namespace = "n", .name = absl::StrCat("mnist-server-", server)};
    json pod = cluster.server.Find(PodType(), key);
    pod["spec"]["nodeName"] = node;
    cluster.server.Put(PodType(), key, std::move(pod));
    cluster.coordinator.report.server_racks[server++] = "";
  }
}

constexpr char kSpecWithRacks[] =
    R"({"image":"i","servers":{"replicas":2},"workers":{"topologyKey":"example.com/rack"}})";

TEST(JobReconcilerTest, RacksAreThoseOfTheNodesWhichAreReadOnce) {
  PlayedCluster cluster(kSpecWithRacks);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  PutOnNodes(cluster, {{"n1", {{"example.com/rack", "r1"}}}, {"n2", {{"example.com/rack", "r2"}}}});

  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  const std::map<int, std::string> racks = {{0, "r1"}, {1, "r2"}};
  EXPECT_EQ(cluster.coordinator.report.server_racks, racks);
  int reads = 0;
  for (const FakeRequest& request : cluster.server.requests())
    reads += request.path.find("/nodes/") != std::string::npos ? 1 : 0;
  EXPECT_EQ(reads, 2);
}

TEST(JobReconcilerTest, AJobGoesOnWithoutRacksWhereNodesCannotBeRead) {
  PlayedCluster cluster(kSpecWithRacks);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  PutOnNodes(cluster, {{"n1", {{"example.com/rack", "r1"}}}});
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_node = request.path.find("/nodes/") != std::string::npos;
    return is_node ? Fault{.kind = Fault::Kind::kAnswer, .code = 403} : Fault{};
  });

  EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(Say(cluster, "Reconciled"), "False Forbidden");
  EXPECT_TRUE(IsIn(cluster, Phase::kRunning));
}

TEST(JobReconcilerTest, AnUnreadableJobIsToldOnceAndElseLeftAlone) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  json deep = json::array();
  for (int i = 1; i < 300; ++i) deep = json::array({std::move(deep)});
  cluster.Change([&](json& spec) { spec["workers"]["template"]["odd"] = deep; });
  const int writes = cluster.num_writes();
  const int asked = cluster.coordinator.num_asked;

  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(Say(cluster, "Reconciled"), "False Unreadable");
  EXPECT_TRUE(IsIn(cluster, Phase::kRunning));
  EXPECT_EQ(cluster.num_writes(), writes + 2);  // its status and the event
  EXPECT_EQ(cluster.coordinator.num_asked, asked);
  EXPECT_EQ(cluster.op->requeue, std::nullopt);

  cluster.Change([](json& spec) { spec["workers"].erase("template"); });
  EXPECT_TRUE(cluster.Until([&] { return Say(cluster, "Reconciled") == "True Reconciled"; }));
}

TEST(JobReconcilerTest, OfTwoOperatorsThatSeeTheSameOneActs) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  PlayedOperator second(cluster);
  cluster.ExitPod("worker-0", 1);
  ASSERT_TRUE(cluster.op->SyncCaches().ok());
  ASSERT_TRUE(second.SyncCaches().ok());

  EXPECT_TRUE(cluster.op->ReconcileOnly().ok());
  EXPECT_TRUE(absl::IsAborted(second.ReconcileOnly()));

  EXPECT_EQ(cluster.Status().restarts.counted, 1);
  EXPECT_EQ(cluster.server.CountRequests("DELETE"), 1);
}

TEST(JobReconcilerTest, AConflictIsReportedAndHasNoConsequences) {
  PlayedCluster cluster(kSpec);
  bool has_changed = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    const bool is_conflict = request.method == "PATCH" && !std::exchange(has_changed, true);
    return is_conflict ? Fault{.kind = Fault::Kind::kAnswer, .code = 409} : Fault{};
  });

  EXPECT_TRUE(absl::IsAborted(cluster.op->Step()));
  EXPECT_EQ(CountPosts(cluster, "pods"), 0);
  EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(CountPosts(cluster, "pods"), 1);
  EXPECT_EQ(cluster.Status().coordinator.term, 1);
}

TEST(JobReconcilerTest, ARefusedPodFailsTheJobBeforeAnythingRuns) {
  PlayedCluster cluster(kSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_worker =
        IsPost(request, "pods") && request.body.find("mnist-worker-0") != std::string::npos;
    return is_worker ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });

  const absl::Status refused = cluster.op->Step();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(IsUsersMistake(refused));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.Status().phase, Phase::kFailed);
  EXPECT_EQ(Say(cluster, "Failed"), "True InvalidSpec");
  EXPECT_EQ(CountPosts(cluster, "pods"), 0);
}

TEST(JobReconcilerTest, AModeTheCoordinatorRefusesIsAUsersMistake) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.Change([](json& spec) { spec["sync"]["mode"] = "Async"; });
  cluster.coordinator.sync_answer = absl::InvalidArgumentError("spec.sync.mode: needs Sync");

  EXPECT_TRUE(IsUsersMistake(cluster.op->Step()));
  EXPECT_TRUE(IsUsersMistake(cluster.op->Step()));
  EXPECT_EQ(Say(cluster, "Degraded"), "True SyncNotChanged");

  cluster.coordinator.sync_answer = absl::OkStatus();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cluster.op->Step().ok());
  EXPECT_EQ(Say(cluster, "Degraded"), "False AllWell");
}

// A coordinator of that term may be there, and may not be the only one of it.
TEST(JobReconcilerTest, ATermIsNotUsedAgainWhereTheAnswerWasLost) {
  PlayedCluster cluster(kSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_pod = IsPost(request, "pods") && !request.query.contains("dryRun");
    return is_pod ? Fault{.kind = Fault::Kind::kDropBefore} : Fault{};
  });
  EXPECT_FALSE(cluster.op->Step().ok());
  cluster.server.InjectFaults(nullptr);

  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  EXPECT_EQ(cluster.Status().coordinator.term, 2);
}

TEST(JobReconcilerTest, AForbiddenPodIsReportedAndCreatedLater) {
  PlayedCluster cluster(kSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_pod = IsPost(request, "pods");
    return is_pod ? Fault{.kind = Fault::Kind::kAnswer, .code = 403} : Fault{};
  });

  EXPECT_TRUE(absl::IsPermissionDenied(cluster.op->Step()));
  EXPECT_TRUE(absl::IsPermissionDenied(cluster.op->Step()));
  EXPECT_EQ(Say(cluster, "Reconciled"), "False Forbidden");
  const json before = cluster.Job();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(absl::IsPermissionDenied(cluster.op->Step()));
  EXPECT_EQ(cluster.Job(), before);  // else each try would be a reason for the next
  cluster.server.InjectFaults(nullptr);

  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  EXPECT_EQ(cluster.Status().coordinator.term, 1);
  EXPECT_EQ(Say(cluster, "Reconciled"), "True Reconciled");
}

class TakenNameTest : public testing::TestWithParam<std::pair<const char*, ResourceType>> {};

TEST_P(TakenNameTest, AForeignObjectIsReportedAndNotTouched) {
  const auto& [name, type] = GetParam();
  const ObjectKey key{.object_namespace = "n", .name = name};
  PlayedCluster cluster(kSpec);
  cluster.server.Put(type, key, {{"spec", {{"of", "somebody else"}}}});

  absl::Status stepped;
  for (int i = 0; i < 20 && stepped.ok(); ++i) {
    stepped = cluster.op->Step();
    cluster.Play();
  }
  EXPECT_TRUE(absl::IsAlreadyExists(stepped)) << stepped;
  EXPECT_TRUE(absl::IsAlreadyExists(cluster.op->Step()));

  EXPECT_EQ(Say(cluster, "Reconciled"), "False NameConflict");
  EXPECT_EQ(cluster.server.Find(type, key)["spec"], json({{"of", "somebody else"}}));
  EXPECT_FALSE(cluster.server.Find(type, key)["metadata"].contains("ownerReferences"));
  cluster.server.Remove(type, key);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  EXPECT_EQ(Say(cluster, "Reconciled"), "True Reconciled");
}

INSTANTIATE_TEST_SUITE_P(EachKind,
                         TakenNameTest,
                         testing::Values(std::pair{"mnist-coordinator", PodType()},
                                         std::pair{"mnist-server-1", PodType()},
                                         std::pair{"mnist-coordinator", ServiceType()},
                                         std::pair{"mnist-tls", SecretType()},
                                         std::pair{"mnist",
                                                   ResourceType{.group = "networking.k8s.io",
                                                                .version = "v1",
                                                                .plural = "networkpolicies"}}),
                         [](const auto& test) {
                           return test.param.second.plural + std::to_string(test.index);
                         });

TEST(JobReconcilerTest, ObjectsThatAreSwitchedOffAreDeleted) {
  const ResourceType policies{
      .group = "networking.k8s.io", .version = "v1", .plural = "networkpolicies"};
  const ObjectKey key{.object_namespace = "n", .name = "mnist"};
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  EXPECT_FALSE(cluster.server.Find(policies, key).is_null());
  cluster.Change([](json& spec) { spec["suspend"] = true; });
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kSuspended); }));

  cluster.Change([](json& spec) {
    spec["suspend"] = false;
    spec["security"]["networkPolicy"] = "Off";
  });
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  EXPECT_TRUE(cluster.server.Find(policies, key).is_null());
}

TEST(JobReconcilerTest, AStatusOfANewerVersionKeepsItsFields) {
  PlayedCluster cluster(kSpec);
  json job = cluster.Job();
  job["status"]["ofANewerVersion"] = 1;
  cluster.server.Put(TrainingJobType(), {.object_namespace = "n", .name = "mnist"}, job);

  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  EXPECT_EQ(cluster.Job()["status"]["ofANewerVersion"], 1);
}

TEST(JobReconcilerTest, ASilentCoordinatorIsAskedLessAndLess) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.coordinator.trouble = absl::DeadlineExceededError("no answer");
  cluster.coordinator.num_asked = 0;

  for (int i = 0; i < 120; ++i) {
    ASSERT_TRUE(cluster.op->Step().ok());
    cluster.now += std::chrono::seconds(1);
  }
  EXPECT_EQ(cluster.coordinator.num_asked, 6);  // after 0, 4, 12, 28, 60 and 92 s
  EXPECT_EQ(FindCondition(cluster.Status().conditions, "Degraded")->reason, "CoordinatorSilent");
  cluster.coordinator.trouble = absl::OkStatus();
  cluster.now += std::chrono::seconds(32);
  ASSERT_TRUE(cluster.op->Step().ok());
  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(FindCondition(cluster.Status().conditions, "Degraded")->reason, "AllWell");
  EXPECT_EQ(cluster.coordinator.num_asked, 8);
}

TEST(JobReconcilerTest, AReportOfAnotherJobsCoordinatorIsIgnored) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.coordinator.report.job = "other";
  cluster.coordinator.report.phase = pushpull::JobPhase::kFailed;

  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_TRUE(IsIn(cluster, Phase::kRunning));
  EXPECT_EQ(FindCondition(cluster.Status().conditions, "Degraded")->reason, "CoordinatorSilent");
}

TEST(JobReconcilerTest, OneThatRefusesConnectionsIsAskedEachTime) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.coordinator.trouble = absl::UnavailableError("connection refused");
  cluster.coordinator.num_asked = 0;

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.coordinator.num_asked, 5);
}

TEST(JobReconcilerTest, ProgressIsWrittenAtMostOnceAMinute) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  ASSERT_TRUE(cluster.op->Step().ok());
  const int writes = cluster.num_writes();

  for (int i = 0; i < 180; ++i) {
    ++cluster.coordinator.report.step;
    ASSERT_TRUE(cluster.op->Step().ok());
    cluster.now += std::chrono::seconds(1);
  }

  EXPECT_EQ(cluster.num_writes() - writes, 3);
  EXPECT_EQ(cluster.Status().progress->step, 121);
}

TEST(JobReconcilerTest, AnotherModeIsBroughtToTheCoordinator) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  cluster.Change([](json& spec) { spec["sync"] = {{"mode", "Async"}}; });

  EXPECT_TRUE(cluster.Until(
      [&] { return cluster.coordinator.report.sync.mode == pushpull::SyncMode::kAsync; }));
}

TEST(JobReconcilerTest, AJobDeletedUnseenIsNoFailure) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.op->SyncCaches().ok());
  cluster.server.Remove(TrainingJobType(), {.object_namespace = "n", .name = "mnist"});

  EXPECT_TRUE(cluster.op->ReconcileOnly().ok());

  EXPECT_EQ(CountPosts(cluster, "pods"), 0);
  EXPECT_EQ(cluster.op->requeue, std::nullopt);
}

TEST(JobReconcilerTest, AJobDeletedWhileItIsReconciledIsNoFailure) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));
  cluster.now += std::chrono::hours(1);
  cluster.Change([](json& spec) { spec["servers"]["replicas"] = 3; });
  cluster.coordinator.on_resize = [] { return absl::UnavailableError("connection refused"); };
  EXPECT_TRUE(absl::IsUnavailable(cluster.op->Step()));

  cluster.coordinator.on_resize = [&] {
    cluster.server.Remove(TrainingJobType(), {.object_namespace = "n", .name = "mnist"});
    EXPECT_TRUE(cluster.op->SyncCaches().ok());
    return absl::UnavailableError("connection refused");
  };

  EXPECT_TRUE(cluster.op->Step().ok());
}

TEST(JobReconcilerTest, ANamespaceThatIsTerminatedIsNoFailure) {
  for (const std::string plural : {"secrets", "pods"}) {
    PlayedCluster cluster(kSpec);
    cluster.server.InjectFaults([&](const FakeRequest& request) {
      return IsPost(request, plural)
                 ? Fault{.kind = Fault::Kind::kAnswer, .code = 403, .cause = "NamespaceTerminating"}
                 : Fault{};
    });

    for (int i = 0; i < 3; ++i) EXPECT_TRUE(cluster.op->Step().ok()) << plural;

    EXPECT_EQ(Say(cluster, "Reconciled"), "True Reconciled");
    EXPECT_EQ(CountPosts(cluster, "events"), 1);  // Starting
  }
}

TEST(JobReconcilerTest, APodThatIsGoneSinceIsNoNameConflict) {
  const ObjectKey pod{.object_namespace = "n", .name = "mnist-coordinator"};
  PlayedCluster cluster(kSpec);
  bool was_there = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    const bool is_pod = IsPost(request, "pods") && !request.query.contains("dryRun");
    if (is_pod && !std::exchange(was_there, true))
      cluster.server.Put(PodType(), pod, json::object());
    if (request.method == "GET" && request.path.ends_with("/pods/mnist-coordinator"))
      cluster.server.Remove(PodType(), pod);
    return Fault{};
  });

  EXPECT_TRUE(absl::IsAborted(cluster.op->Step()));
  ASSERT_TRUE(cluster.Until([&] { return IsIn(cluster, Phase::kRunning); }));

  EXPECT_EQ(Say(cluster, "Reconciled"), "True Reconciled");
}

TEST(JobReconcilerTest, AJobThatIsGoneIsForgotten) {
  PlayedCluster cluster(kSpec);
  ASSERT_TRUE(cluster.op->Step().ok());
  const int writes = cluster.num_writes();
  cluster.server.Remove(TrainingJobType(), {.object_namespace = "n", .name = "mnist"});

  EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.num_writes(), writes);
}

}  // namespace
}  // namespace pushpull_operator
