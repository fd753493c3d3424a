// SPDX-License-Identifier: Apache-2.0
//
// The certificates of a job over its life, against an API server over HTTP.
#include "operator/controller/certificate_keeper.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/certificates/job_certificates.h"
#include "operator/children/tls_secret.h"
#include "tests/unit/operator/controller/played_cluster.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using std::chrono::days;
using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr char kKeeperSpec[] = R"({"image":"i","servers":{"replicas":1}})";
const ObjectKey kSecret{.object_namespace = "n", .name = "mnist-tls"};

bool IsRunning(const PlayedCluster& cluster) {
  return cluster.Status().phase == Phase::kRunning;
}

JobCertificates CertificatesOf(const json& secret) {
  return DecodeTlsSecret(*DecodeObject(secret, ""));
}

std::string Reconciled(const PlayedCluster& cluster) {
  const std::vector<Condition> conditions = cluster.Status().conditions;
  const Condition* condition = FindCondition(conditions, "Reconciled");
  return condition == nullptr ? "none" : condition->status + " " + condition->reason;
}

bool IsForSecrets(const FakeRequest& request) {
  return request.path.find("/secrets") != std::string::npos;
}

std::vector<std::string> SecretCalls(const PlayedCluster& cluster) {
  std::vector<std::string> methods;
  for (const FakeRequest& request : cluster.server.requests()) {
    if (IsForSecrets(request)) methods.push_back(request.method);
  }
  return methods;
}

bool IsPod(const FakeRequest& request) {
  return request.method == "POST" && request.path.ends_with("/pods");
}

// Another operator's, or the user's own.
json SecretWith(const JobCertificates& certificates, const std::string& owner_uid) {
  return json::parse(NewTlsSecretText(
      {.key = {.object_namespace = "n", .name = "mnist"}, .uid = owner_uid}, certificates));
}

// What the keeper makes for the job of kKeeperSpec.
JobSubjects Subjects() {
  return SubjectsOf({.object_namespace = "n", .name = "mnist"},
                    {"coordinator", "server-0", "worker-0"});
}
JobCertificates Fresh(WallTime now) {
  return UpdateCertificates({}, Subjects(), now, days(90))->certificates;
}

// As the version before wrote it: one pair for all.
JobCertificates OldLayout(WallTime now) {
  JobCertificates certificates = Fresh(now);
  certificates.pairs.clear();
  certificates.shared = *MakeMember(
      Subjects().shared,
      {.begin = now - kClockSkewMax, .end = now + days(90)},
      {.certificate = certificates.authorities, .private_key = certificates.authority_key});
  return certificates;
}

const KeyPair& OperatorsPair(const JobCertificates& certificates) {
  return certificates.pairs.at("operator");
}

std::vector<std::string> MembersOf(const JobCertificates& certificates) {
  std::vector<std::string> members;
  for (const auto& [member, pair] : certificates.pairs) members.push_back(member);
  return members;
}

TEST(CertificateKeeperTest, TheSecretExistsBeforeTheFirstPodAndIsUsedForCalls) {
  PlayedCluster cluster(kKeeperSpec);

  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  const JobCertificates certificates = CertificatesOf(cluster.Secret());
  EXPECT_EQ(DecodeObject(cluster.Secret(), "")->meta.controller_uid,
            cluster.Job()["metadata"]["uid"]);
  ASSERT_NE(cluster.coordinator.endpoint.tls, nullptr);
  EXPECT_EQ(*cluster.coordinator.endpoint.tls,
            (pushpull::TlsFiles{.authorities = certificates.authorities,
                                .certificate = OperatorsPair(certificates).certificate,
                                .private_key = OperatorsPair(certificates).private_key}));
  EXPECT_THAT(MembersOf(certificates),
              testing::ElementsAre("coordinator", "operator", "server-0", "worker-0"));
  EXPECT_EQ(certificates.shared, KeyPair{});
  for (const FakeRequest& request : cluster.server.requests()) {
    ASSERT_FALSE(IsPod(request)) << "a pod was made first";
    if (request.method == "POST" && IsForSecrets(request)) break;
  }
}

TEST(CertificateKeeperTest, ARunningJobCostsAReadAnHour) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const size_t before = SecretCalls(cluster).size();

  for (int minute = 0; minute < 150; ++minute) {
    ASSERT_TRUE(cluster.op->Step().ok());
    cluster.now += std::chrono::minutes(1);
  }

  EXPECT_EQ(SecretCalls(cluster).size() - before, 2U);
}

TEST(CertificateKeeperTest, AnOperatorThatStartsAnewReadsAndWritesNothing) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const size_t before = SecretCalls(cluster).size();
  cluster.op = std::make_unique<PlayedOperator>(cluster);

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  const std::vector<std::string> calls = SecretCalls(cluster);
  ASSERT_EQ(calls.size(), before + 1);
  EXPECT_EQ(calls.back(), "GET");
  EXPECT_EQ(cluster.coordinator.certificates.size(), 1U);
}

TEST(CertificateKeeperTest, ThePairOfARunningJobIsRenewedInTime) {
  PlayedCluster cluster(kKeeperSpec);
  const WallTime begin = cluster.now;
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates first = CertificatesOf(cluster.Secret());
  cluster.now = begin + days(54) - seconds(7);
  ASSERT_TRUE(cluster.op->Step().ok());
  ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_EQ(CertificatesOf(cluster.Secret()), first);
  EXPECT_LE(cluster.op->requeue, seconds(7));

  cluster.now = begin + days(54);
  ASSERT_TRUE(cluster.op->Step().ok());

  const JobCertificates renewed = CertificatesOf(cluster.Secret());
  EXPECT_EQ(renewed.authorities, first.authorities);
  for (const auto& [member, pair] : renewed.pairs)
    EXPECT_NE(pair.certificate, first.pairs.at(member).certificate) << member;
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, OperatorsPair(renewed).certificate);
  EXPECT_TRUE(IsRunning(cluster));
  EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
}

TEST(CertificateKeeperTest, AJobThatHasEndedIsNotRenewed) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Secret().is_null(); }));
  const size_t before = SecretCalls(cluster).size();

  cluster.now += days(80);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(SecretCalls(cluster).size(), before);
}

TEST(CertificateKeeperTest, ASuspendedJobHasFreshOnesWhenItGoesOn) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates first = CertificatesOf(cluster.Secret());
  cluster.Change([](json& spec) { spec["suspend"] = true; });
  ASSERT_TRUE(cluster.Until([&] { return cluster.Status().phase == Phase::kSuspended; }));
  cluster.now += days(80);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cluster.op->Step().ok());
  EXPECT_EQ(CertificatesOf(cluster.Secret()), first);

  cluster.Change([](json& spec) { spec["suspend"] = false; });
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  const JobCertificates next = CertificatesOf(cluster.Secret());
  EXPECT_NE(OperatorsPair(next), OperatorsPair(first));
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, OperatorsPair(next).certificate);
}

TEST(CertificateKeeperTest, ADeletedSecretIsThereAgainBeforeTheNextPod) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.server.Remove(SecretType(), kSecret);
  cluster.ExitPod("worker-0", 1);
  bool was_pod_first = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    was_pod_first |= IsPod(request) && cluster.Secret().is_null();
    return Fault{};
  });

  ASSERT_TRUE(cluster.Until([&] { return cluster.pods["worker-0"].size() == 2; }));

  EXPECT_FALSE(was_pod_first);
  EXPECT_FALSE(cluster.Secret().is_null());
}

TEST(CertificateKeeperTest, ADeletedSecretIsThereAgainWithinAnHour) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.server.Remove(SecretType(), kSecret);

  cluster.now += hours(1);
  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_FALSE(cluster.Secret().is_null());
}

TEST(CertificateKeeperTest, ADamagedSecretIsMended) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  json damaged = cluster.Secret();
  damaged["data"].erase("worker-0.key");
  cluster.server.Put(SecretType(), kSecret, damaged);

  cluster.now += hours(1);
  ASSERT_TRUE(cluster.op->Step().ok());

  const JobCertificates mended = CertificatesOf(cluster.Secret());
  EXPECT_TRUE(
      CheckMember(mended.pairs.at("worker-0"),
                  {.certificate = mended.authorities, .private_key = mended.authority_key}));
}

TEST(CertificateKeeperTest, WithoutTlsSecretsAreNotTouched) {
  PlayedCluster cluster(R"({"image":"i","servers":{"replicas":1},"security":{"tls":"Off"}})");

  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  EXPECT_THAT(SecretCalls(cluster), testing::IsEmpty());
  EXPECT_EQ(cluster.coordinator.endpoint.tls, nullptr);
}

TEST(CertificateKeeperTest, TheUsersSecretIsAwaitedAndNeverWritten) {
  const ObjectKey mine{.object_namespace = "n", .name = "mine"};
  PlayedCluster cluster(
      R"({"image":"i","servers":{"replicas":1},"security":{"secretName":"mine"}})");
  EXPECT_TRUE(absl::IsNotFound(cluster.op->Step()));
  EXPECT_TRUE(absl::IsNotFound(cluster.op->Step()));
  EXPECT_EQ(Reconciled(cluster), "False SecretMissing");
  // However long it takes: nothing is written, so nothing hurries the next try.
  const int writes = cluster.num_writes();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(absl::IsNotFound(cluster.op->Step()));
  EXPECT_EQ(cluster.num_writes(), writes);
  const JobCertificates certificates = OldLayout(cluster.now);
  json secret = SecretWith(certificates, "nobody");
  secret["data"].erase("tls.crt");
  cluster.server.Put(SecretType(), mine, secret);
  EXPECT_TRUE(absl::IsNotFound(cluster.op->Step()));
  EXPECT_FALSE(cluster.Has("coordinator"));

  cluster.server.Put(SecretType(), mine, SecretWith(certificates, "nobody"));
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  EXPECT_EQ(Reconciled(cluster), "True Reconciled");
  EXPECT_EQ(cluster.Status().coordinator.term, 1);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, certificates.shared.certificate);
  EXPECT_TRUE(cluster.Secret().is_null());
  EXPECT_THAT(SecretCalls(cluster), testing::Each("GET"));
}

TEST(CertificateKeeperTest, OneThatAnotherOperatorHasJustMadeIsTaken) {
  PlayedCluster cluster(kKeeperSpec);
  const json other = SecretWith(Fresh(cluster.now), cluster.Job()["metadata"]["uid"]);
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    if (request.method == "POST" && IsForSecrets(request) && cluster.Secret().is_null())
      cluster.server.Put(SecretType(), kSecret, other);
    return Fault{};
  });

  EXPECT_TRUE(absl::IsAborted(cluster.op->Step()));
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  EXPECT_EQ(cluster.Secret()["data"], other["data"]);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate,
            OperatorsPair(CertificatesOf(other)).certificate);
}

TEST(CertificateKeeperTest, OneThatAnotherOperatorHasJustRenewedIsTaken) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.now += days(60);
  JobCertificates renewed = CertificatesOf(cluster.Secret());
  renewed = UpdateCertificates(renewed, Subjects(), cluster.now, days(90))->certificates;
  const json other = SecretWith(renewed, cluster.Job()["metadata"]["uid"]);
  bool has_written = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    if (request.method == "PATCH" && IsForSecrets(request) && !std::exchange(has_written, true))
      cluster.server.Put(SecretType(), kSecret, other);
    return Fault{};
  });

  EXPECT_TRUE(absl::IsAborted(cluster.op->Step()));
  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.Secret()["data"], other["data"]);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, OperatorsPair(renewed).certificate);
}

TEST(CertificateKeeperTest, ARefusedCallIsRetriedWithTheSecretsPresentPair) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates other = Fresh(cluster.now);
  cluster.server.Put(SecretType(), kSecret, SecretWith(other, cluster.Job()["metadata"]["uid"]));
  cluster.coordinator.accepted = OperatorsPair(other).certificate;

  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, OperatorsPair(other).certificate);
  EXPECT_TRUE(IsRunning(cluster));
  EXPECT_EQ(FindCondition(cluster.Status().conditions, "Degraded"), nullptr);
}

TEST(CertificateKeeperTest, ACoordinatorThatIsGoneCostsAReadInHalfAMinute) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.coordinator.trouble = absl::UnavailableError("connection refused");
  const size_t before = SecretCalls(cluster).size();

  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(cluster.op->Step().ok());
    cluster.now += seconds(1);
  }

  EXPECT_EQ(SecretCalls(cluster).size() - before, 2U);
}

TEST(CertificateKeeperTest, NewMembersHavePairsBeforeTheirPods) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates before = CertificatesOf(cluster.Secret());
  bool was_pod_first = false;
  cluster.server.InjectFaults([&](const FakeRequest& request) {
    if (IsPod(request) && request.body.find("mnist-server-2") != std::string::npos)
      was_pod_first |= !CertificatesOf(cluster.Secret()).pairs.contains("server-2");
    return Fault{};
  });

  cluster.Change([](json& spec) { spec["servers"]["replicas"] = 3; });
  ASSERT_TRUE(cluster.Until([&] { return cluster.Has("server-2"); }));

  const JobCertificates after = CertificatesOf(cluster.Secret());
  EXPECT_FALSE(was_pod_first);
  EXPECT_TRUE(after.pairs.contains("server-1"));
  EXPECT_EQ(after.pairs.at("server-0"), before.pairs.at("server-0"));
}

TEST(CertificateKeeperTest, ASecretOfTheVersionBeforeIsExtended) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates old = OldLayout(cluster.now);
  cluster.server.Put(SecretType(), kSecret, SecretWith(old, cluster.Job()["metadata"]["uid"]));
  cluster.op = std::make_unique<PlayedOperator>(cluster);

  ASSERT_TRUE(cluster.op->Step().ok());

  // Running pods have the shared pair mounted, and trust its authority.
  const JobCertificates upgraded = CertificatesOf(cluster.Secret());
  EXPECT_EQ(upgraded.authorities, old.authorities);
  EXPECT_EQ(upgraded.shared, old.shared);
  EXPECT_THAT(MembersOf(upgraded),
              testing::ElementsAre("coordinator", "operator", "server-0", "worker-0"));
  EXPECT_TRUE(IsRunning(cluster));
  EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
}

TEST(CertificateKeeperTest, AJobWithTooManyMembersIsToldSo) {
  PlayedCluster cluster(R"({"image":"i","servers":{"replicas":1},"workers":{"replicas":1500}})");

  EXPECT_TRUE(absl::IsOutOfRange(cluster.op->Step()));
  EXPECT_TRUE(absl::IsOutOfRange(cluster.op->Step()));

  EXPECT_EQ(Reconciled(cluster), "False TooManyMembers");
  EXPECT_FALSE(cluster.Has("coordinator"));
  EXPECT_TRUE(cluster.Secret().is_null());
}

TEST(CertificateKeeperTest, TheKeysGoOnceWhenTheJobHasEnded) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  EXPECT_FALSE(cluster.Secret().is_null());

  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] {
    return cluster.Status().phase == Phase::kSucceeded && !cluster.Has("coordinator") &&
           !cluster.Has("server-0");
  }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_TRUE(cluster.Secret().is_null());
  int num_deletes = 0;
  for (const FakeRequest& request : cluster.server.requests())
    num_deletes += request.method == "DELETE" && IsForSecrets(request) ? 1 : 0;
  EXPECT_EQ(num_deletes, 1);
  EXPECT_TRUE(cluster.Has("worker-0"));
}

TEST(CertificateKeeperTest, TheKeysStayWhileAPodOfTheJobRuns) {
  PlayedCluster cluster(kKeeperSpec);
  cluster.Change([](json& spec) { spec["cleanup"] = "None"; });
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Status().phase == Phase::kSucceeded; }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cluster.op->Step().ok());

  EXPECT_TRUE(cluster.Has("server-0"));
  EXPECT_FALSE(cluster.Secret().is_null());
}

TEST(CertificateKeeperTest, AnothersSecretOutlivesTheJob) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.server.Put(SecretType(), kSecret, SecretWith(Fresh(cluster.now), "somebody"));

  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Status().phase == Phase::kSucceeded; }));
  for (int i = 0; i < 3; ++i) cluster.op->Step().IgnoreError();

  EXPECT_FALSE(cluster.Secret().is_null());
}

class RefusedSecretTest : public testing::TestWithParam<int> {};

TEST_P(RefusedSecretTest, IsCreatedLaterAndFailsNoJob) {
  PlayedCluster cluster(kKeeperSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    const bool is_secret = request.method == "POST" && IsForSecrets(request);
    return is_secret ? Fault{.kind = Fault::Kind::kAnswer, .code = GetParam()} : Fault{};
  });
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cluster.op->Step().ok());
  EXPECT_FALSE(cluster.Has("coordinator"));
  cluster.server.InjectFaults(nullptr);

  EXPECT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
}

INSTANTIATE_TEST_SUITE_P(EachCode, RefusedSecretTest, testing::Values(403, 422, 500));

TEST(CertificateKeeperTest, AForbiddenSecretIsReported) {
  PlayedCluster cluster(kKeeperSpec);
  cluster.server.InjectFaults([](const FakeRequest& request) {
    return IsForSecrets(request) ? Fault{.kind = Fault::Kind::kAnswer, .code = 403} : Fault{};
  });

  for (int i = 0; i < 2; ++i) EXPECT_TRUE(absl::IsPermissionDenied(cluster.op->Step()));

  EXPECT_EQ(Reconciled(cluster), "False Forbidden");
}

// A renewal that cannot be written for hours does not hold up the job.
TEST(CertificateKeeperTest, ThePairOfBeforeStaysInUseUntilTheNextIsWritten) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates first = CertificatesOf(cluster.Secret());
  cluster.server.InjectFaults([](const FakeRequest& request) {
    return IsForSecrets(request) ? Fault{.kind = Fault::Kind::kAnswer, .code = 500} : Fault{};
  });
  cluster.now += days(60);

  EXPECT_FALSE(cluster.op->Step().ok());
  cluster.Change([](json& spec) { spec["sync"] = {{"mode", "Async"}}; });
  EXPECT_FALSE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.coordinator.report.sync.mode, pushpull::SyncMode::kAsync);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, OperatorsPair(first).certificate);
}

TEST(CertificateKeeperTest, NoKeyIsInAnythingButTheSecret) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates first = CertificatesOf(cluster.Secret());
  cluster.now += days(60);
  ASSERT_TRUE(cluster.op->Step().ok());
  const JobCertificates second = CertificatesOf(cluster.Secret());
  cluster.ExitPod("worker-0", 1);
  ASSERT_TRUE(cluster.Until([&] { return cluster.pods["worker-0"].size() == 2; }));

  std::vector<std::string> keys = {first.authority_key, second.authority_key};
  for (const JobCertificates& certificates : {first, second}) {
    for (const auto& [member, pair] : certificates.pairs) keys.push_back(pair.private_key);
  }
  for (const std::string& key : keys) {
    std::vector<std::string> traces = absl::StrSplit(key, '\n');
    ASSERT_GE(traces.size(), 4U);
    traces = {traces[1], absl::Base64Escape(key)};
    for (const std::string& trace : traces) {
      EXPECT_THAT(cluster.Job().dump(), Not(HasSubstr(trace)));
      for (const FakeRequest& request : cluster.server.requests()) {
        EXPECT_TRUE(IsForSecrets(request) || request.body.find(trace) == std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace pushpull_operator
