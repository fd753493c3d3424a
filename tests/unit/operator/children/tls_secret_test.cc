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
                                    .certificate = "certificate\n",
                                    .private_key = "key\n"};

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
  EXPECT_EQ(DecodeTlsSecret(secret), kCertificates);
}

TEST(TlsSecretTest, APatchIsForTheVersionThatWasRead) {
  const json patch = json::parse(TlsSecretPatchText(kCertificates, "17"));

  EXPECT_EQ(patch["metadata"], json({{"resourceVersion", "17"}}));
  EXPECT_EQ(patch["data"]["ca.crt"], "YXV0aG9yaXRpZXMK");
  EXPECT_EQ(patch.size(), 2U);
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
  EXPECT_THAT(MembersSubject(kSecretOwner.key).dns_names,
              testing::ElementsAre("pushpull", "mnist-coordinator.n.svc"));
}

}  // namespace
}  // namespace pushpull_operator
