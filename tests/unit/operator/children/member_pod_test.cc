// SPDX-License-Identifier: Apache-2.0
#include "operator/children/member_pod.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job/checkpoint_place.h"
#include "runtime/job/parse.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::JobRole;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;

const ObjectMeta kPodOwner{.key = {.object_namespace = "n", .name = "mnist"}, .uid = "job-1"};
const PodSettings kSettings{.runtime_image = "pushpull:1"};
constexpr MemberStart kCoordinator{.member = {.role = JobRole::kCoordinator}, .term = 4};
constexpr MemberStart kServer{.member = {.role = JobRole::kServer, .index = 2}};
constexpr MemberStart kWorker{.member = {.role = JobRole::kWorker, .index = 1}};

TrainingJobObject Job(const std::string& spec) {
  return DecodeTrainingJobObject(
      *ParseObject(R"({"metadata":{"name":"mnist","namespace":"n"},"spec":)" + spec + "}"));
}

json PodOf(const TrainingJobObject& job, const MemberStart& start) {
  EXPECT_THAT(job.problems, IsEmpty());
  return json::parse(MemberPodText(kPodOwner, job, start, kSettings));
}

json Main(const json& pod) {
  return pod["spec"]["containers"][0];
}

std::vector<std::string> Words(const json& list) {
  return list.get<std::vector<std::string>>();
}

TEST(MemberPodTest, EveryPodIsTheJobsAndSaysWhichMemberItIs) {
  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    const Object pod =
        *ParseObject(MemberPodText(kPodOwner, Job(R"({"image":"i"})"), start, kSettings));

    EXPECT_EQ(pod.meta.key.name, PodName("mnist", start.member));
    EXPECT_EQ(pod.meta.key.object_namespace, "n");
    EXPECT_EQ(pod.meta.controller_uid, "job-1");
    EXPECT_EQ(MemberOf(pod.meta.labels), start.member);
    EXPECT_EQ((*pod.json)["spec"]["restartPolicy"], "Never");
  }
}

// The fields that the level `restricted` asks for (Kubernetes, "Pod Security Standards").
TEST(MemberPodTest, EveryPodPassesTheLevelRestricted) {
  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    const json pod = PodOf(Job(R"({"image":"i"})"), start);

    EXPECT_EQ(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    EXPECT_EQ(pod["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
    EXPECT_EQ(Main(pod)["securityContext"]["allowPrivilegeEscalation"], false);
    EXPECT_EQ(Main(pod)["securityContext"]["readOnlyRootFilesystem"], true);
    EXPECT_EQ(Main(pod)["terminationMessagePolicy"], "FallbackToLogsOnError");
    EXPECT_EQ(Main(pod)["securityContext"]["capabilities"]["drop"], json::array({"ALL"}));
  }
}

// Where the cluster gives each namespace users of its own, it refuses others.
TEST(MemberPodTest, TheSecurityContextIsTheOperators) {
  PodSettings settings = kSettings;
  settings.security_context = R"({"runAsNonRoot":true,"supplementalGroups":[7]})";
  const TrainingJobObject job =
      Job(R"({"image":"i","workers":{"template":{"spec":{"securityContext":{"fsGroup":8}}}}})");

  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    json expected = json::parse(settings.security_context);
    if (start.member.role == JobRole::kWorker) expected["fsGroup"] = 8;

    const json pod = json::parse(MemberPodText(kPodOwner, job, start, settings));

    EXPECT_EQ(pod["spec"]["securityContext"], expected);
    EXPECT_FALSE(Main(pod)["securityContext"].contains("runAsUser"));
  }
}

TEST(MemberPodTest, UnlessToldOtherwiseMembersAreOneUserOfOneGroup) {
  const json context = PodOf(Job("{}"), kServer)["spec"]["securityContext"];

  EXPECT_EQ(context["runAsUser"], 65532);
  EXPECT_EQ(context["runAsGroup"], 65532);
  EXPECT_EQ(context["fsGroup"], 65532);
}

TEST(MemberPodTest, ACoordinatorHasItsTermAndTheManifest) {
  const TrainingJobObject job =
      Job(R"({"image":"i","servers":{"replicas":3},"checkpoint":{"claim":"c","path":"/a"}})");
  const json pod = PodOf(job, kCoordinator);

  EXPECT_EQ(Main(pod)["image"], "pushpull:1");
  EXPECT_EQ(Main(pod)["command"], json::array({"pushpull", "coordinator"}));
  EXPECT_THAT(Words(Main(pod)["args"]),
              ElementsAre("--manifest",
                          "/etc/pushpull/job.json",
                          "--term",
                          "4",
                          "--log-level",
                          "info",
                          "--set",
                          "spec.servers.minReplicas=1",
                          "--set",
                          "spec.servers.maxReplicas=1024",
                          "--set",
                          "spec.workers.minReplicas=1",
                          "--set",
                          "spec.workers.maxReplicas=4096",
                          "--checkpoints",
                          "/var/lib/pushpull/checkpoints/a"));
  EXPECT_EQ(pod["metadata"]["labels"]["pushpull.dev/term"], "4");
  const std::string manifest = pod["metadata"]["annotations"]["pushpull.dev/manifest"];
  const pushpull::ParsedJob parsed = pushpull::ParseTrainingJob(manifest, {});
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.job, job.job);
}

TEST(MemberPodTest, JobsOnOneClaimHaveFoldersOfTheirOwn) {
  std::set<std::string> folders;
  for (const char* name : {"mnist", "cifar"}) {
    const TrainingJobObject job = DecodeTrainingJobObject(
        *ParseObject(absl::StrCat(R"({"metadata":{"namespace":"n","name":")",
                                  name,
                                  R"("},"spec":{"image":"i","checkpoint":{"claim":"c"}}})")));
    const json pod = PodOf(job, kCoordinator);
    // What the coordinator makes of its arguments.
    const std::vector<std::string> words = Words(Main(pod)["args"]);
    const std::string root = *std::next(std::ranges::find(words, "--checkpoints"));
    const std::string manifest = pod["metadata"]["annotations"]["pushpull.dev/manifest"];
    const pushpull::ParsedJob parsed = pushpull::ParseTrainingJob(manifest, {});
    folders.insert(pushpull::JobCheckpoints(root, parsed.job.metadata));
  }

  EXPECT_THAT(folders,
              ElementsAre("/var/lib/pushpull/checkpoints/n/cifar",
                          "/var/lib/pushpull/checkpoints/n/mnist"));
}

TEST(MemberPodTest, AJobThatGoesOnTakesItsOwnLastCheckpoint) {
  const TrainingJobObject job =
      Job(R"({"image":"i","checkpoint":{"claim":"c","restoreFrom":"step-5","restore":"Values"}})");
  MemberStart again = kCoordinator;
  again.goes_on = true;

  EXPECT_THAT(
      Words(Main(PodOf(job, again))["args"]),
      IsSupersetOf({"--set", "spec.checkpoint.restoreFrom=latest", "spec.checkpoint.restore=All"}));
  EXPECT_THAT(Words(Main(PodOf(job, kCoordinator))["args"]),
              testing::Not(Contains("spec.checkpoint.restoreFrom=latest")));
}

TEST(MemberPodTest, AServerFindsItsCoordinatorAndIsFound) {
  const json pod = PodOf(
      Job(R"({"image":"i","servers":{"threads":4,"image":"s:2","resources":{"limits":{"cpu":"2"}}},
              "checkpoint":{"claim":"c"}})"),
      kServer);

  EXPECT_EQ(Main(pod)["image"], "s:2");
  EXPECT_THAT(Words(Main(pod)["args"]),
              ElementsAre("--job",
                          "mnist",
                          "--index",
                          "2",
                          "--coordinator",
                          "mnist-coordinator.n.svc:7170",
                          "--advertise",
                          "$(POD_IP)",
                          "--threads",
                          "4",
                          "--log-level",
                          "info"));
  EXPECT_EQ(Main(pod)["resources"], json::parse(R"({"limits":{"cpu":"2"}})"));
  EXPECT_THAT(
      Main(pod)["volumeMounts"],
      Contains(json({{"name", "checkpoints"}, {"mountPath", "/var/lib/pushpull/checkpoints"}})));
  EXPECT_TRUE(pod["spec"]["affinity"].contains("podAntiAffinity"));
}

TEST(MemberPodTest, AWorkerRunsTheUsersProgramWithAllThatItNeeds) {
  const json pod = PodOf(Job(R"({"image":"user:1","command":["python3","train.py"],"args":["-v"],
              "env":[{"name":"A","value":"1"},
                     {"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],
              "workers":{"gpusPerWorker":2}})"),
                         kWorker);

  EXPECT_EQ(Main(pod)["image"], "user:1");
  EXPECT_EQ(Main(pod)["command"], json::array({"python3", "train.py"}));
  EXPECT_EQ(Main(pod)["args"], json::array({"-v"}));
  EXPECT_EQ(Main(pod)["env"], json::parse(R"([
      {"name":"A","value":"1"},
      {"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}},
      {"name":"PUSHPULL_JOB","value":"mnist"},
      {"name":"PUSHPULL_ROLE","value":"worker"},
      {"name":"PUSHPULL_INDEX","value":"1"},
      {"name":"PUSHPULL_COORDINATOR","value":"mnist-coordinator.n.svc:7170"},
      {"name":"PUSHPULL_METRICS_PORT","value":"9464"},
      {"name":"PUSHPULL_TERMINATION_LOG","value":"/dev/termination-log"},
      {"name":"PUSHPULL_LOG_LEVEL","value":"info"},
      {"name":"PUSHPULL_TLS_DIR","value":"/etc/pushpull-tls"}])"));
  EXPECT_EQ(Main(pod)["resources"]["limits"]["nvidia.com/gpu"], 2);
}

TEST(MemberPodTest, AWorkerOfARingIsReachedByTheOthers) {
  const json pod = PodOf(
      Job(R"({"image":"i","sync":{"mode":"AllReduce"},"servers":{"replicas":0},"security":{"tls":"Off"}})"),
      kWorker);

  const json environment = Main(pod)["env"];
  const auto named = [&](const char* name) {
    return std::find_if(environment.begin(), environment.end(), [&](const json& variable) {
      return variable["name"] == name;
    });
  };
  ASSERT_NE(named("PUSHPULL_RING"), environment.end());
  EXPECT_EQ((*named("PUSHPULL_RING"))["value"], "[$(POD_IP)]:7172");
  // What a value refers to comes before it.
  EXPECT_LT(named("POD_IP"), named("PUSHPULL_RING"));
  EXPECT_THAT(Main(pod)["ports"], Contains(json({{"name", "ring"}, {"containerPort", 7172}})));
}

TEST(MemberPodTest, WorkersSeeCheckpointsOnlyWhereTheyWriteThem) {
  const json ring = PodOf(
      Job(R"({"image":"i","checkpoint":{"claim":"c"},"sync":{"mode":"AllReduce"},"servers":{"replicas":0}})"),
      kWorker);
  const json served = PodOf(Job(R"({"image":"i","checkpoint":{"claim":"c"}})"), kWorker);

  const json checkpoints = {{"name", "checkpoints"},
                            {"mountPath", "/var/lib/pushpull/checkpoints"}};
  EXPECT_THAT(Main(ring)["volumeMounts"], Contains(checkpoints));
  EXPECT_THAT(Main(served)["volumeMounts"], testing::Not(Contains(checkpoints)));
}

TEST(MemberPodTest, AWorkerOfAGroupIsReachedByTheOthersAndKnowsItsNode) {
  const json pod = PodOf(
      Job(R"({"image":"i","sync":{"localReduce":"Host"},"security":{"tls":"Off"}})"), kWorker);

  const json environment = Main(pod)["env"];
  const auto named = [&](const char* name) {
    return std::find_if(environment.begin(), environment.end(), [&](const json& variable) {
      return variable["name"] == name;
    });
  };
  ASSERT_NE(named("PUSHPULL_GROUP"), environment.end());
  EXPECT_EQ((*named("PUSHPULL_GROUP"))["value"], "[$(POD_IP)]:7172");
  EXPECT_LT(named("POD_IP"), named("PUSHPULL_GROUP"));
  ASSERT_NE(named("PUSHPULL_NODE"), environment.end());
  EXPECT_EQ((*named("PUSHPULL_NODE"))["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
  EXPECT_EQ(named("PUSHPULL_RING"), environment.end());
  EXPECT_THAT(Main(pod)["ports"], Contains(json({{"name", "ring"}, {"containerPort", 7172}})));
}

TEST(MemberPodTest, SchedulingFieldsReachThePods) {
  const TrainingJobObject job =
      Job(R"({"image":"i","scheduling":{"priorityClass":"high","spreadServers":false},
              "restart":{"nodeLostAfterSeconds":90},
              "servers":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}},
              "workers":{"resources":{"requests":{"cpu":"1"}}}})");

  const json server = PodOf(job, kServer);

  EXPECT_EQ(server["spec"]["priorityClassName"], "high");
  EXPECT_FALSE(server["spec"].contains("affinity"));
  EXPECT_EQ(server["spec"]["nodeSelector"]["disk"], "ssd");
  for (const json& toleration : server["spec"]["tolerations"])
    EXPECT_EQ(toleration["tolerationSeconds"], 90);
  EXPECT_EQ(Main(PodOf(job, kWorker))["resources"]["requests"]["cpu"], "1");
}

TEST(MemberPodTest, TheUsersLogLevelComesBeforeTheOperators) {
  const json pod =
      PodOf(Job(R"({"image":"i","env":[{"name":"PUSHPULL_LOG_LEVEL","value":"debug"}]})"), kWorker);

  const json container = Main(pod);
  std::vector<std::string> levels;
  for (const json& variable : container["env"]) {
    if (variable["name"] == "PUSHPULL_LOG_LEVEL") levels.push_back(variable["value"]);
  }
  EXPECT_THAT(levels, testing::ElementsAre("debug"));
}

TEST(MemberPodTest, ACoordinatorHasResourcesAndATemplateAsEveryRole) {
  const json pod = PodOf(Job(R"({"image":"i","coordinator":{
              "resources":{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"memory":"1Gi"}},
              "template":{"metadata":{"name":"other","labels":{"team":"a"}},
                          "spec":{"nodeSelector":{"disk":"ssd"}}}}})"),
                         kCoordinator);

  EXPECT_EQ(
      Main(pod)["resources"],
      json::parse(R"({"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"memory":"1Gi"}})"));
  EXPECT_EQ(pod["spec"]["nodeSelector"]["disk"], "ssd");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["name"], "mnist-coordinator");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_TRUE(Main(PodOf(Job(R"({"image":"i"})"), kCoordinator))["resources"].is_null());
}

TEST(MemberPodTest, PodDefaultsAreEveryRoles) {
  const TrainingJobObject job = Job(R"({"image":"i","podDefaults":{
              "imagePullSecrets":[{"name":"registry"}],"serviceAccountName":"trainer",
              "tolerations":[{"key":"gpu","operator":"Exists"}],"nodeSelector":{"pool":"t"},
              "labels":{"team":"a"},"annotations":{"example.com/why":"because"}}})");
  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    const json pod = PodOf(job, start);

    EXPECT_EQ(pod["spec"]["imagePullSecrets"], json::parse(R"([{"name":"registry"}])"));
    EXPECT_EQ(pod["spec"]["serviceAccountName"], "trainer");
    EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
    ASSERT_EQ(pod["spec"]["tolerations"].size(), 3U);
    EXPECT_EQ(pod["spec"]["tolerations"][2]["key"], "gpu");
    EXPECT_EQ(pod["spec"]["nodeSelector"], json::parse(R"({"pool":"t"})"));
    EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
    EXPECT_EQ(pod["metadata"]["annotations"]["example.com/why"], "because");
    EXPECT_EQ(MemberOf(ParseObject(pod.dump())->meta.labels), start.member);
  }
}

TEST(MemberPodTest, ARolesTemplateComesAfterPodDefaults) {
  const TrainingJobObject job = Job(R"({"image":"i",
      "podDefaults":{"serviceAccountName":"trainer","nodeSelector":{"pool":"t","disk":"hdd"},
                     "labels":{"team":"a","tier":"low"},"tolerations":[{"key":"gpu"}],
                     "imagePullSecrets":[{"name":"registry"}]},
      "servers":{"template":{"metadata":{"labels":{"tier":"high"}},
                 "spec":{"serviceAccountName":"server","nodeSelector":{"disk":"ssd"},
                         "imagePullSecrets":[{"name":"mirror"}],"tolerations":[{"key":"spot"}]}}}})");

  const json server = PodOf(job, kServer);

  EXPECT_EQ(server["spec"]["serviceAccountName"], "server");
  EXPECT_EQ(server["spec"]["nodeSelector"], json::parse(R"({"pool":"t","disk":"ssd"})"));
  EXPECT_EQ(server["metadata"]["labels"]["tier"], "high");
  EXPECT_EQ(server["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(server["spec"]["imagePullSecrets"],
            json::parse(R"([{"name":"registry"},{"name":"mirror"}])"));
  EXPECT_EQ(server["spec"]["tolerations"].size(), 4U);
  EXPECT_EQ(PodOf(job, kWorker)["spec"]["serviceAccountName"], "trainer");
}

TEST(MemberPodTest, EveryLabelOfThePodsIsReserved) {
  const TrainingJobObject job = Job(R"({"image":"i"})");
  std::set<std::string> own;
  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    const json pod = PodOf(job, start);
    for (const auto& [key, value] : pod["metadata"]["labels"].items()) own.insert(key);
  }

  EXPECT_EQ(
      own,
      std::set<std::string>(pushpull::kReservedLabels.begin(), pushpull::kReservedLabels.end()));
}

// The volume of one member's files in the Secret.
json TlsVolume(const std::string& name, const std::string& secret, const std::string& member) {
  json volume = json::parse(R"({"secret":{"defaultMode":288,"items":[
      {"key":"ca.crt","path":"ca.crt"},{"path":"tls.crt"},{"path":"tls.key"}]}})");
  volume["name"] = name;
  volume["secret"]["secretName"] = secret;
  volume["secret"]["items"][1]["key"] = member + ".crt";
  volume["secret"]["items"][2]["key"] = member + ".key";
  return volume;
}

TEST(MemberPodTest, EveryPodHasItsOwnCertificateAndNoOthersKey) {
  const std::vector<std::pair<MemberStart, std::string>> members = {
      {kCoordinator, "coordinator"},
      {kServer, "server-" + std::to_string(kServer.member.index)},
      {kWorker, "worker-" + std::to_string(kWorker.member.index)}};
  for (const auto& [start, member] : members) {
    const json pod = PodOf(Job(R"({"image":"i"})"), start);

    EXPECT_THAT(pod["spec"]["volumes"], Contains(TlsVolume("pushpull-tls", "mnist-tls", member)));
    EXPECT_THAT(Main(pod)["volumeMounts"], Contains(json::parse(R"({
        "name":"pushpull-tls","mountPath":"/etc/pushpull-tls","readOnly":true})")));
    EXPECT_THAT(Main(pod)["env"], Contains(json::parse(R"({
        "name":"PUSHPULL_TLS_DIR","value":"/etc/pushpull-tls"})")));
    EXPECT_THAT(pod.dump(), testing::Not(testing::HasSubstr("ca.key")));
  }
}

TEST(MemberPodTest, TheUsersCertificatesTakeTheirPlace) {
  const json pod = PodOf(Job(R"({"image":"i","security":{"secretName":"mine"}})"), kServer);

  EXPECT_THAT(pod["spec"]["volumes"], Contains(TlsVolume("pushpull-tls", "mine", "tls")));
}

TEST(MemberPodTest, WithoutTlsNothingIsMounted) {
  for (const MemberStart& start : {kCoordinator, kServer, kWorker}) {
    const json pod = PodOf(Job(R"({"image":"i","security":{"tls":"Off"}})"), start);

    EXPECT_THAT(pod.dump(), testing::Not(testing::HasSubstr("/etc/pushpull-tls")));
    EXPECT_THAT(pod.dump(), testing::Not(testing::HasSubstr("PUSHPULL_TLS_DIR")));
  }
}

TEST(MemberPodTest, ATemplateChangesWhatTheOperatorDoesNotGoBy) {
  const json pod = PodOf(Job(R"({"image":"i","workers":{"template":{
              "metadata":{"name":"other","labels":{"team":"a"},
                          "ownerReferences":[]},
              "spec":{"restartPolicy":"Never","nodeSelector":{"gpu":"yes"},
                      "tolerations":[{"operator":"Exists"}],
                      "containers":[{"name":"worker","workingDir":"/w"},{"name":"logs"}]}}}})"),
                         kWorker);

  EXPECT_EQ(pod["metadata"]["name"], "mnist-worker-1");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"]["pushpull.dev/job"], "mnist");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "job-1");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["gpu"], "yes");
  EXPECT_EQ(pod["spec"]["tolerations"].size(), 3U);
  EXPECT_EQ(Main(pod)["workingDir"], "/w");
  EXPECT_EQ(Main(pod)["image"], "i");
  EXPECT_EQ(pod["spec"]["containers"].size(), 2U);
}

TEST(MemberPodTest, AnOddTemplateIsTheApiServersToRefuse) {
  for (const char* text : {R"({"spec":{"volumes":7}})",
                           R"({"metadata":{"labels":null},"spec":{"containers":null}})",
                           R"({"metadata":null,"spec":null})"}) {
    const TrainingJobObject job =
        Job(std::string(R"({"image":"i","workers":{"template":)") + text + "}}");

    EXPECT_EQ(PodOf(job, kWorker)["metadata"]["labels"]["pushpull.dev/index"], "1") << text;
  }
}

std::string LeaveSeconds(const json& pod) {
  const json container = Main(pod);
  for (const json& variable : container.value("env", json::array())) {
    if (variable["name"] == "PUSHPULL_LEAVE_SECONDS") return variable["value"];
  }
  return "";
}

TEST(MemberPodTest, EveryPodHasAMinuteToLeaveAndWhoSavesALittleLess) {
  const TrainingJobObject job = Job(R"({"image":"i"})");

  for (const MemberStart& start : {kCoordinator, kServer, kWorker})
    EXPECT_EQ(PodOf(job, start)["spec"]["terminationGracePeriodSeconds"], 60);
  for (const MemberStart& start : {kCoordinator, kServer})
    EXPECT_EQ(LeaveSeconds(PodOf(job, start)), "50");
  EXPECT_EQ(LeaveSeconds(PodOf(job, kWorker)), "");
}

TEST(MemberPodTest, ATemplatesGraceIsTheServersToo) {
  for (const auto& [grace, leave] :
       {std::pair<int, std::string>{600, "590"}, {12, "6"}, {1, "0"}, {0, "0"}}) {
    const json servers = {{"template", {{"spec", {{"terminationGracePeriodSeconds", grace}}}}}};
    const json pod = PodOf(Job(json{{"image", "i"}, {"servers", servers}}.dump()), kServer);

    EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], grace);
    EXPECT_EQ(LeaveSeconds(pod), leave);
  }
}

// ---- a server in the pod of a worker ----

TrainingJobObject JobWithServersBeside(const std::string& more = "") {
  return Job(R"({"image":"user:1","workers":{"colocatedServer":true},
                 "servers":{"threads":2,"resources":{"limits":{"cpu":"2"}}})" +
             more + "}");
}

TEST(ColocatedServerPodTest, TheWorkersContainerIsFirst) {
  const json pod = PodOf(JobWithServersBeside(), kWorker);

  ASSERT_EQ(pod["spec"]["containers"].size(), 2U);
  EXPECT_EQ(Main(pod)["name"], "worker");
  EXPECT_EQ(Main(pod)["image"], "user:1");
  const json server = pod["spec"]["containers"][1];
  EXPECT_EQ(server["name"], "server");
  EXPECT_EQ(server["image"], "pushpull:1");
  EXPECT_EQ(server["command"], json::array({"pushpull", "server"}));
  EXPECT_EQ(server["resources"], json::parse(R"({"limits":{"cpu":"2"}})"));
  EXPECT_THAT(Words(server["args"]),
              ElementsAre("--job",
                          "mnist",
                          "--index",
                          "1025",
                          "--coordinator",
                          "mnist-coordinator.n.svc:7170",
                          "--advertise",
                          "$(POD_IP)",
                          "--threads",
                          "2",
                          "--log-level",
                          "info",
                          "--weight",
                          "0.5",
                          "--metrics",
                          "0.0.0.0:9465"));
}

TEST(ColocatedServerPodTest, TheTwoShareAFolderInMemory) {
  const json pod = PodOf(JobWithServersBeside(), kWorker);

  EXPECT_THAT(pod["spec"]["volumes"],
              Contains(json::parse(R"({"name":"shm","emptyDir":{"medium":"Memory"}})")));
  for (const json& container : pod["spec"]["containers"]) {
    EXPECT_THAT(container["volumeMounts"],
                Contains(json::parse(R"({"name":"shm","mountPath":"/run/pushpull/shm"})")));
    EXPECT_THAT(container["env"], Contains(json::parse(R"({
        "name":"PUSHPULL_SHM_DIR","value":"/run/pushpull/shm"})")));
  }
}

TEST(ColocatedServerPodTest, NoPortAndNoVolumeIsThereTwice) {
  const json pod =
      PodOf(JobWithServersBeside(R"(,"checkpoint":{"claim":"c","path":"/a"})"), kWorker);

  std::set<int> ports;
  size_t num_ports = 0;
  for (const json& container : pod["spec"]["containers"]) {
    for (const json& port : container["ports"]) {
      ports.insert(port["containerPort"].get<int>());
      ++num_ports;
    }
  }
  std::set<std::string> volumes;
  for (const json& volume : pod["spec"]["volumes"]) volumes.insert(volume["name"]);
  EXPECT_EQ(ports, (std::set<int>{7171, 9464, 9465}));
  EXPECT_EQ(num_ports, ports.size());
  EXPECT_EQ(volumes.size(), pod["spec"]["volumes"].size());
  EXPECT_EQ(volumes,
            (std::set<std::string>{
                "checkpoints", "pushpull-tls", "pushpull-tls-server-1025", "shm", "tmp"}));
}

TEST(ColocatedServerPodTest, ItsContainerIsRestrictedAndHasTheCertificates) {
  const json server = PodOf(JobWithServersBeside(), kWorker)["spec"]["containers"][1];

  EXPECT_EQ(server["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_EQ(server["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(server["securityContext"]["capabilities"]["drop"], json::array({"ALL"}));
  EXPECT_THAT(server["env"], Contains(json::parse(R"({
      "name":"PUSHPULL_TLS_DIR","value":"/etc/pushpull-tls"})")));
  EXPECT_THAT(server["env"], Contains(json::parse(R"({
      "name":"PUSHPULL_LEAVE_SECONDS","value":"50"})")));
}

TEST(ColocatedServerPodTest, WorkerAndServerHaveEachTheirOwnCertificate) {
  const json pod = PodOf(JobWithServersBeside(), kWorker);
  const json mount = {{"mountPath", "/etc/pushpull-tls"}, {"readOnly", true}};

  for (const auto& [index, volume, member] :
       {std::tuple{size_t{0}, "pushpull-tls", "worker-1"},
        std::tuple{size_t{1}, "pushpull-tls-server-1025", "server-1025"}}) {
    json expected = mount;
    expected["name"] = volume;
    int num_mounts = 0;
    for (const json& found : pod["spec"]["containers"][index]["volumeMounts"]) {
      if (found["mountPath"] != mount["mountPath"]) continue;
      EXPECT_EQ(found, expected);
      ++num_mounts;
    }
    EXPECT_EQ(num_mounts, 1);
    EXPECT_THAT(pod["spec"]["volumes"], Contains(TlsVolume(volume, "mnist-tls", member)));
  }
}

TEST(ColocatedServerPodTest, TheUsersPairIsForBoth) {
  const json pod = PodOf(
      Job(R"({"image":"i","workers":{"colocatedServer":true},"security":{"secretName":"mine"}})"),
      kWorker);

  for (const json& container : pod["spec"]["containers"]) {
    EXPECT_THAT(container["volumeMounts"], Contains(json::parse(R"({
        "name":"pushpull-tls","mountPath":"/etc/pushpull-tls","readOnly":true})")));
  }
}

TEST(ColocatedServerPodTest, ATemplateReachesItByItsName) {
  const json pod = PodOf(Job(R"({"image":"i","workers":{"colocatedServer":true,"template":{
      "spec":{"containers":[{"name":"server","resources":{"limits":{"cpu":"1"}}}]}}}})"),
                         kWorker);

  ASSERT_EQ(pod["spec"]["containers"].size(), 2U);
  EXPECT_EQ(pod["spec"]["containers"][1]["resources"]["limits"]["cpu"], "1");
}

TEST(ColocatedServerPodTest, OtherPodsHaveNone) {
  for (const MemberStart& start : {kCoordinator, kServer})
    EXPECT_EQ(PodOf(JobWithServersBeside(), start)["spec"]["containers"].size(), 1U);
  EXPECT_EQ(PodOf(Job(R"({"image":"i"})"), kWorker)["spec"]["containers"].size(), 1U);
}

}  // namespace
}  // namespace pushpull_operator
