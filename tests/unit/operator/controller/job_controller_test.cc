// SPDX-License-Identifier: Apache-2.0
//
// The threads around the reconciler, on an API server over HTTP and the machine's own clock.
#include "operator/controller/job_controller.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_api_server.h"
#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr char kControllerSpec[] =
    R"({"image":"i","servers":{"replicas":1},"workers":{"replicas":1}})";

ObjectKey Key(const std::string& object_namespace, const std::string& name) {
  return {.object_namespace = object_namespace, .name = name};
}

// Polls every few milliseconds; false: not within a minute.
bool Eventually(const std::function<bool()>& is_so) {
  const Cancellation never;
  const Deadline deadline = Deadline::After(seconds(60));
  while (!is_so()) {
    if (deadline.has_passed()) return false;
    SystemPausingTime().PauseUntil(SystemPausingTime().Now() + milliseconds(5), never);
  }
  return true;
}

bool IsPost(const FakeRequest& request, const std::string& plural) {
  return request.method == "POST" && request.path.ends_with("/" + plural);
}

json Nested(int levels) {
  json nested = json::array();
  for (int i = 1; i < levels; ++i) nested = json::array({std::move(nested)});
  return nested;
}

// An operator that leads.
class Operator {
 public:
  explicit Operator(FakeApiServer& server, std::vector<std::string> namespaces = {})
      : credentials_(*Credentials::Create(server.access(), SystemPausingTime())),
        client(*credentials_, SystemPausingTime(), {.rate_limit = {.qps = 1e6, .burst = 1000}}),
        metrics_(registry),
        controller(std::make_unique<JobController>(
            client,
            SystemPausingTime(),
            coordinator_,
            metrics_,
            ControllerOptions{.namespaces = std::move(namespaces),
                              .workers = 4,
                              .reconciler = {.pods = {.runtime_image = "pushpull:1"},
                                             .instance = "operator-1",
                                             .now =
                                                 [] {
                                                   return std::chrono::time_point_cast<seconds>(
                                                       std::chrono::system_clock::now());
                                                 }}},
            pushpull::Log("operator"))) {}
  ~Operator() {
    controller->Stop();
    client.Stop();
  }

 private:
  std::unique_ptr<Credentials> credentials_;
  PlayedCoordinator coordinator_;

 public:
  pushpull::MetricsRegistry registry;
  KubeClient client;

 private:
  OperatorMetrics metrics_;

 public:
  std::unique_ptr<JobController> controller;
};

class JobControllerTest : public testing::Test {
 protected:
  void PutJob(const std::string& object_namespace, const std::string& name) {
    server_.Put(TrainingJobType(),
                Key(object_namespace, name),
                {{"apiVersion", "pushpull.dev/v1alpha1"},
                 {"kind", "TrainingJob"},
                 {"metadata", {{"generation", 1}}},
                 {"spec", json::parse(kControllerSpec)}});
  }
  // The job with a field of its workers' template that no reader of pods knows.
  void PutOddJob(const std::string& object_namespace, const std::string& name, json odd) {
    json spec = json::parse(kControllerSpec);
    spec["workers"]["template"]["odd"] = std::move(odd);
    server_.Put(TrainingJobType(),
                Key(object_namespace, name),
                {{"apiVersion", "pushpull.dev/v1alpha1"},
                 {"kind", "TrainingJob"},
                 {"metadata", {{"generation", 1}}},
                 {"spec", std::move(spec)}});
  }
  // The message of its condition Reconciled, where that is false for the reason Unreadable.
  std::string WhyUnreadable(const std::string& object_namespace, const std::string& name) const {
    const json job = server_.Find(TrainingJobType(), Key(object_namespace, name));
    for (const json& condition : job.value("/status/conditions"_json_pointer, json::array())) {
      const bool is_it = condition["type"] == "Reconciled" && condition["status"] == "False" &&
                         condition["reason"] == "Unreadable";
      if (is_it) return condition["message"].get<std::string>();
    }
    return "";
  }
  bool HasEvent(const std::string& object_namespace, const std::string& reason) const {
    for (const FakeRequest& request : server_.requests()) {
      const bool is_there =
          request.path.find("/namespaces/" + object_namespace + "/") != std::string::npos;
      const bool is_event = is_there && IsPost(request, "events");
      if (is_event && json::parse(request.body)["reason"] == reason) return true;
    }
    return false;
  }
  bool HasCoordinator(const std::string& object_namespace, const std::string& job) const {
    return !server_.Find(PodType(), Key(object_namespace, job + "-coordinator")).is_null();
  }
  int CountPods() const {
    int count = 0;
    for (const FakeRequest& request : server_.requests())
      count += IsPost(request, "pods") && !request.query.contains("dryRun") ? 1 : 0;
    return count;
  }

  int CountLists(const std::string& plural) const {
    int count = 0;
    for (const FakeRequest& request : server_.requests()) {
      const bool is_read = request.method == "GET" && !request.is_watch();
      count += is_read && request.path.ends_with("/" + plural) ? 1 : 0;
    }
    return count;
  }

  // Of injected faults, which a request that is still under way may look at after the test's body.
  std::atomic<int> num_refused_ = 0;
  std::atomic<bool> is_well_ = false;
  FakeApiServer server_;
};

TEST_F(JobControllerTest, JobsThatThereAreAndJobsThatComeAreStarted) {
  PutJob("n", "early");
  Operator op(server_);

  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return HasCoordinator("n", "early"); }));
  EXPECT_TRUE(op.controller->Ready().ok());
  PutJob("m", "late");

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("m", "late"); }));
}

TEST_F(JobControllerTest, NothingIsPlannedBeforeEveryFirstListingIsComplete) {
  PutJob("n", "mnist");
  server_.InjectFaults([this](const FakeRequest& request) {
    const bool is_pods = request.method == "GET" && request.path.ends_with("/pods");
    if (!is_pods || is_well_) return Fault{};
    ++num_refused_;
    return Fault{.kind = Fault::Kind::kAnswer, .code = 500};
  });
  Operator op(server_);

  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return num_refused_ >= 2; }));
  EXPECT_TRUE(absl::IsUnavailable(op.controller->Ready()));
  EXPECT_EQ(server_.CountRequests("PATCH"), 0);
  EXPECT_EQ(CountPods(), 0);
  is_well_ = true;

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
  EXPECT_EQ(CountPods(), 1);
}

// Of an operator that is newer than the CRDs of the cluster, or than its rights.
TEST_F(JobControllerTest, JobsRunWhereWorkersCannotBeListed) {
  PutJob("n", "mnist");
  server_.InjectFaults([](const FakeRequest& request) {
    const bool is_workers = request.path.find("/trainingjobworkers") != std::string::npos;
    return is_workers ? Fault{.kind = Fault::Kind::kAnswer, .code = 403} : Fault{};
  });
  Operator op(server_);

  op.controller->Start();

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
  EXPECT_TRUE(op.controller->Ready().ok());
}

TEST_F(JobControllerTest, JobsRunWhereWorkersAreRefused) {
  PutJob("n", "mnist");
  server_.InjectFaults([](const FakeRequest& request) {
    const bool is_new = request.method == "POST" && request.path.ends_with("/trainingjobworkers");
    return is_new ? Fault{.kind = Fault::Kind::kAnswer, .code = 422} : Fault{};
  });
  Operator op(server_);

  op.controller->Start();

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
}

TEST_F(JobControllerTest, AConflictIsTriedAgainAndIsNoError) {
  PutJob("n", "mnist");
  server_.InjectFaults([this](const FakeRequest& request) {
    const bool is_first = request.method == "PATCH" && num_refused_++ == 0;
    return is_first ? Fault{.kind = Fault::Kind::kAnswer, .code = 409} : Fault{};
  });
  Operator op(server_);

  op.controller->Start();

  ASSERT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
  const std::string text = op.registry.Text();
  EXPECT_THAT(text, HasSubstr("pushpull_operator_conflicts_total 1\n"));
  EXPECT_THAT(text, HasSubstr("pushpull_operator_reconcile_errors_total{controller=\"job\"} 0\n"));
}

TEST_F(JobControllerTest, AFailingJobIsRetriedAndDoesNotDelayOthers) {
  PutJob("n", "bad");
  PutJob("n", "good");
  server_.InjectFaults([this](const FakeRequest& request) {
    const bool is_bad =
        request.method == "PATCH" && request.path.find("/trainingjobs/bad") != std::string::npos;
    if (!is_bad || is_well_) return Fault{};
    ++num_refused_;
    return Fault{.kind = Fault::Kind::kAnswer, .code = 403};
  });
  Operator op(server_);

  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return HasCoordinator("n", "good") && num_refused_ >= 3; }));
  EXPECT_FALSE(HasCoordinator("n", "bad"));
  is_well_ = true;

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("n", "bad"); }));
  EXPECT_THAT(
      op.registry.Text(),
      testing::Not(HasSubstr("pushpull_operator_reconcile_errors_total{controller=\"job\"} 0\n")));
}

TEST_F(JobControllerTest, JobsOfOtherNamespacesAreLeftAlone) {
  PutJob("theirs", "mnist");
  PutJob("ours", "mnist");
  PutJob("ours-too", "mnist");
  Operator op(server_, {"ours", "ours-too"});

  op.controller->Start();

  ASSERT_TRUE(Eventually(
      [&] { return HasCoordinator("ours", "mnist") && HasCoordinator("ours-too", "mnist"); }));
  EXPECT_FALSE(HasCoordinator("theirs", "mnist"));
  for (const FakeRequest& request : server_.requests()) {
    EXPECT_THAT(request.path, HasSubstr("/namespaces/ours"));
  }
}

TEST_F(JobControllerTest, AHangingApiServerDoesNotHoldUpTheEnd) {
  PutJob("n", "mnist");
  server_.InjectFaults([this](const FakeRequest& request) {
    if (request.method != "PATCH") return Fault{};
    ++num_refused_;
    return Fault{.kind = Fault::Kind::kHang};
  });
  Operator op(server_);
  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return num_refused_ > 0; }));

  op.controller->Stop();
  EXPECT_TRUE(absl::IsDeadlineExceeded(op.controller->AwaitIdle(Deadline::After(milliseconds(1)))));
  op.client.Stop();

  EXPECT_TRUE(op.controller->AwaitIdle(Deadline::After(seconds(60))).ok());
}

TEST_F(JobControllerTest, UnreadableJobsAreToldAndDelayNobody) {
  PutOddJob("n", "deep", Nested(300));
  PutOddJob("m", "large", std::string(2'000'000, 'x'));
  PutJob("n", "good");
  PutJob("m", "good");
  Operator op(server_);

  op.controller->Start();

  ASSERT_TRUE(
      Eventually([&] { return HasCoordinator("n", "good") && HasCoordinator("m", "good"); }));
  ASSERT_TRUE(Eventually([&] { return HasEvent("n", "Unreadable"); }));
  ASSERT_TRUE(Eventually([&] { return HasEvent("m", "Unreadable"); }));
  EXPECT_THAT(WhyUnreadable("n", "deep"), HasSubstr("spec.workers.template nests deeper than"));
  EXPECT_THAT(WhyUnreadable("m", "large"), HasSubstr("spec.workers.template"));
  EXPECT_FALSE(HasCoordinator("n", "deep"));
  EXPECT_FALSE(HasCoordinator("m", "large"));
}

TEST_F(JobControllerTest, AnUnreadableChangeLeavesPodsAlone) {
  PutJob("n", "mnist");
  Operator op(server_);
  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
  ASSERT_TRUE(server_.AwaitWatches(2));

  PutOddJob("n", "mnist", Nested(300));
  ASSERT_TRUE(Eventually([&] { return HasEvent("n", "Unreadable"); }));
  PutJob("n", "late");
  ASSERT_TRUE(Eventually([&] { return HasCoordinator("n", "late"); }));

  EXPECT_TRUE(HasCoordinator("n", "mnist"));
  EXPECT_EQ(server_.CountRequests("DELETE"), 0);
  for (const std::string& kind : {std::string("trainingjobs"), std::string("pods")})
    EXPECT_EQ(CountLists(kind), 1) << kind;
}

TEST_F(JobControllerTest, AJobThatIsMendedIsReconciled) {
  PutOddJob("n", "mnist", Nested(300));
  Operator op(server_);
  op.controller->Start();
  ASSERT_TRUE(Eventually([&] { return !WhyUnreadable("n", "mnist").empty(); }));

  PutOddJob("n", "mnist", Nested(2));

  EXPECT_TRUE(Eventually([&] { return HasCoordinator("n", "mnist"); }));
  EXPECT_TRUE(Eventually([&] { return WhyUnreadable("n", "mnist").empty(); }));
}

TEST_F(JobControllerTest, GaugesCountJobsByPhase) {
  PutJob("n", "mnist");
  PutJob("n", "other");
  json done = server_.Find(TrainingJobType(), Key("n", "other"));
  done["status"] = {
      {"phase", "Succeeded"},
      {"conditions", json::array({{{"type", "ScalingBlocked"}, {"status", "True"}}})}};
  server_.Put(TrainingJobType(), Key("n", "other"), done);
  Operator op(server_);

  op.controller->Start();

  EXPECT_TRUE(Eventually([&] {
    const OperatorGauges gauges = op.controller->gauges();
    return gauges.jobs == std::map<std::string, int>{{"Starting", 1}, {"Succeeded", 1}};
  }));
}

}  // namespace
}  // namespace pushpull_operator
