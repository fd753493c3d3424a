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

JobCertificates Fresh(WallTime now) {
  return UpdateCertificates({}, {.name = "x", .dns_names = {"pushpull"}}, now, days(90))
      ->certificates;
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
                                .certificate = certificates.certificate,
                                .private_key = certificates.private_key}));
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
  EXPECT_NE(renewed.certificate, first.certificate);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, renewed.certificate);
  EXPECT_TRUE(IsRunning(cluster));
  EXPECT_EQ(cluster.Status().restarts, RestartsStatus{});
}

TEST(CertificateKeeperTest, AJobThatHasEndedIsNotRenewed) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.ExitPod("worker-0", 0);
  ASSERT_TRUE(cluster.Until([&] { return !cluster.Has("coordinator"); }));
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

  EXPECT_NE(CertificatesOf(cluster.Secret()).certificate, first.certificate);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate,
            CertificatesOf(cluster.Secret()).certificate);
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
  damaged["data"].erase("tls.key");
  cluster.server.Put(SecretType(), kSecret, damaged);

  cluster.now += hours(1);
  ASSERT_TRUE(cluster.op->Step().ok());

  const JobCertificates mended = CertificatesOf(cluster.Secret());
  EXPECT_TRUE(
      CheckMember({.certificate = mended.certificate, .private_key = mended.private_key},
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
  const JobCertificates certificates = Fresh(cluster.now);
  json secret = SecretWith(certificates, "nobody");
  secret["data"].erase("tls.crt");
  cluster.server.Put(SecretType(), mine, secret);
  EXPECT_TRUE(absl::IsNotFound(cluster.op->Step()));
  EXPECT_FALSE(cluster.Has("coordinator"));

  cluster.server.Put(SecretType(), mine, SecretWith(certificates, "nobody"));
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));

  EXPECT_EQ(Reconciled(cluster), "True Reconciled");
  EXPECT_EQ(cluster.Status().coordinator.term, 1);
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, certificates.certificate);
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
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, CertificatesOf(other).certificate);
}

TEST(CertificateKeeperTest, OneThatAnotherOperatorHasJustRenewedIsTaken) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  cluster.now += days(60);
  JobCertificates renewed = CertificatesOf(cluster.Secret());
  renewed =
      UpdateCertificates(renewed, {.name = "x", .dns_names = {"pushpull"}}, cluster.now, days(90))
          ->certificates;
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
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, renewed.certificate);
}

TEST(CertificateKeeperTest, ARefusedCallIsRetriedWithTheSecretsPresentPair) {
  PlayedCluster cluster(kKeeperSpec);
  ASSERT_TRUE(cluster.Until([&] { return IsRunning(cluster); }));
  const JobCertificates other = Fresh(cluster.now);
  cluster.server.Put(SecretType(), kSecret, SecretWith(other, cluster.Job()["metadata"]["uid"]));
  cluster.coordinator.accepted = other.certificate;

  ASSERT_TRUE(cluster.op->Step().ok());

  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, other.certificate);
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
  EXPECT_EQ(cluster.coordinator.endpoint.tls->certificate, first.certificate);
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

  for (const std::string& key :
       {first.authority_key, first.private_key, second.authority_key, second.private_key}) {
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
