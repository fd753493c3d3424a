// SPDX-License-Identifier: Apache-2.0
#include "operator/children/tls_secret.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::SecuritySpec;
using pushpull::TlsMode;

const ObjectMeta kSecretOwner{.key = {.object_namespace = "n", .name = "mnist"}, .uid = "job-1"};
const JobCertificates kCertificates{.authorities = "authorities\n",
                                    .authority_key = "authority's key\n",
                                    .shared = {"certificate\n", "key\n"},
                                    .pairs = {{"worker-1", {"of worker-1\n", "its key\n"}}}};

TEST(TlsSecretTest, ItIsTheJobsUnlessTheUserHasOneOrWantsNone) {
  EXPECT_EQ(TlsSecretName("mnist", {}), "mnist-tls");
  EXPECT_EQ(TlsSecretName("mnist", {.secret_name = "mine"}), "mine");
  EXPECT_EQ(TlsSecretName("mnist", {.tls = TlsMode::kOff}), "");
}

TEST(TlsSecretTest, ItsTextIsReadAsWhatWasWritten) {
  const Object secret = *ParseObject(NewTlsSecretText(kSecretOwner, kCertificates));

  EXPECT_EQ(secret.meta.key, (ObjectKey{.object_namespace = "n", .name = "mnist-tls"}));
  EXPECT_EQ(secret.meta.controller_uid, "job-1");
  EXPECT_EQ(secret.meta.labels.at("pushpull.dev/job"), "mnist");
  EXPECT_EQ((*secret.json)["type"], "Opaque");
  EXPECT_EQ((*secret.json)["data"]["tls.key"], "a2V5Cg==");
  EXPECT_EQ((*secret.json)["data"]["worker-1.key"], "aXRzIGtleQo=");
  EXPECT_EQ(DecodeTlsSecret(secret), kCertificates);
}

TEST(TlsSecretTest, WithoutASharedPairItsKeysAreNotThere) {
  JobCertificates certificates = kCertificates;
  certificates.shared = {};

  const Object secret = *ParseObject(NewTlsSecretText(kSecretOwner, certificates));

  EXPECT_FALSE((*secret.json)["data"].contains("tls.crt"));
  EXPECT_FALSE((*secret.json)["data"].contains("tls.key"));
  EXPECT_EQ(DecodeTlsSecret(secret), certificates);
}

TEST(TlsSecretTest, APatchHasWhatDiffersForTheVersionThatWasRead) {
  JobCertificates next = kCertificates;
  next.authorities = "other authorities\n";
  next.pairs = {{"server-0", {"of server-0\n", "its key\n"}}};

  const json patch = json::parse(TlsSecretPatchText(kSecretOwner, kCertificates, next, "17"));

  EXPECT_EQ(patch["metadata"]["resourceVersion"], "17");
  EXPECT_EQ(patch["metadata"]["labels"]["pushpull.dev/job"], kSecretOwner.key.name);
  EXPECT_EQ(patch["data"],
            json({{"ca.crt", "b3RoZXIgYXV0aG9yaXRpZXMK"},
                  {"server-0.crt", "b2Ygc2VydmVyLTAK"},
                  {"server-0.key", "aXRzIGtleQo="},
                  {"worker-1.crt", nullptr},
                  {"worker-1.key", nullptr}}));
  EXPECT_EQ(patch.size(), 2U);
}

TEST(TlsSecretTest, KeysOfOthersAreLeftAlone) {
  const Object secret = *ParseObject(
      R"({"metadata":{},"data":{"mine.crt":"YQo=","worker-x.crt":"YQo=","worker-01.crt":"YQo="}})");

  EXPECT_EQ(DecodeTlsSecret(secret), JobCertificates{});
}

TEST(TlsSecretTest, MoreThanASecretHoldsIsTold) {
  JobCertificates many = kCertificates;
  for (int i = 0; i < 1000; ++i)
    many.pairs["worker-" + std::to_string(i)] = {std::string(500, 'c'), std::string(500, 'k')};
  EXPECT_TRUE(CheckSecretSize(many).ok());
  for (int i = 0; i < 100; ++i)
    many.pairs["server-" + std::to_string(i)] = {std::string(500, 'c'), std::string(500, 'k')};

  const absl::Status why = CheckSecretSize(many);

  EXPECT_EQ(why.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(why.message()),
              testing::AllOf(testing::HasSubstr("1100 members"),
                             testing::HasSubstr("spec.security.secretName")));
}

TEST(TlsSecretTest, WhatIsMissingOrDamagedIsEmpty) {
  for (const char* text : {R"({"metadata":{}})",
                           R"({"metadata":{},"data":null})",
                           R"({"metadata":{},"data":["tls.key"]})",
                           R"({"metadata":{},"data":{"tls.key":7,"ca.crt":"*no base64*"}})"}) {
    EXPECT_EQ(DecodeTlsSecret(*ParseObject(text)), JobCertificates{}) << text;
  }
}

TEST(TlsSecretTest, MembersBearTheNamesThatTheyAreAskedFor) {
  const JobSubjects subjects = SubjectsOf(kSecretOwner.key, {"worker-1"});

  EXPECT_EQ(subjects.members.size(), 2U);
  EXPECT_THAT(subjects.members.at("worker-1").dns_names,
              testing::ElementsAre("pushpull", "worker-1.mnist.n.pushpull"));
  EXPECT_THAT(subjects.members.at("operator").dns_names,
              testing::ElementsAre("pushpull", "operator.mnist.n.pushpull"));
  EXPECT_THAT(subjects.shared.dns_names,
              testing::ElementsAre("pushpull", "mnist-coordinator.n.svc"));
}

TEST(TlsSecretTest, AServerBesideAWorkerIsAMemberOfItsOwn) {
  pushpull::TrainingJobSpec spec;
  const MemberId worker{.role = pushpull::JobRole::kWorker, .index = 2};
  EXPECT_THAT(CertificateMembers(spec, worker), testing::ElementsAre("worker-2"));

  spec.workers.colocated_server = true;

  EXPECT_THAT(CertificateMembers(spec, worker), testing::ElementsAre("worker-2", "server-1026"));
  EXPECT_THAT(CertificateMembers(spec, {}), testing::ElementsAre("coordinator"));
}

}  // namespace
}  // namespace pushpull_operator
