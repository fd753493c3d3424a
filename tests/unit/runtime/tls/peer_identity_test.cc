// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/peer_identity.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

PeerIdentity Identity(const Names& dns_names) {
  const absl::StatusOr<PeerIdentity> identity = PeerIdentity::Of(dns_names);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return identity.value_or(PeerIdentity::Anybody());
}

bool MayBe(const Names& dns_names, const std::string& member) {
  return Identity(dns_names).CheckIs(member).ok();
}

bool Manages(const Names& dns_names) {
  return Identity(dns_names).CheckManages("resize the job").ok();
}

absl::StatusCode Admission(const Names& peer, const Names& own) {
  return AdmitPeer(peer, Identity(own)).status().code();
}

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;

// ---- what a certificate may be ----

TEST(PeerIdentityTest, OneWithoutAMembersNameIsAnyMember) {
  for (const Names& names : {Names{"pushpull"}, Names{"mnist.ml.pushpull"}}) {
    EXPECT_TRUE(MayBe(names, "worker-3"));
    EXPECT_TRUE(MayBe(names, "server-0"));
    EXPECT_TRUE(MayBe(names, "coordinator"));
    EXPECT_TRUE(Manages(names));
  }
}

TEST(PeerIdentityTest, AWorkersIsThisWorkerOnly) {
  const Names worker = {"pushpull", "worker-3.mnist.ml.pushpull"};

  EXPECT_TRUE(MayBe(worker, "worker-3"));
  EXPECT_FALSE(MayBe(worker, "worker-2"));
  EXPECT_FALSE(MayBe(worker, "worker-33"));
  EXPECT_FALSE(MayBe(worker, "server-3"));
  EXPECT_FALSE(MayBe(worker, "coordinator"));
  EXPECT_FALSE(MayBe(worker, ""));
  EXPECT_FALSE(Manages(worker));
}

TEST(PeerIdentityTest, AServersIsThisServerOnly) {
  const Names server = {"pushpull", "server-1.mnist.ml.pushpull"};

  EXPECT_TRUE(MayBe(server, "server-1"));
  EXPECT_FALSE(MayBe(server, "server-0"));
  EXPECT_FALSE(MayBe(server, "worker-1"));
  EXPECT_FALSE(Manages(server));
}

TEST(PeerIdentityTest, CoordinatorAndOperatorManage) {
  EXPECT_TRUE(Manages({"pushpull", "coordinator.mnist.ml.pushpull"}));
  EXPECT_TRUE(Manages({"pushpull", "operator.mnist.ml.pushpull"}));
  EXPECT_FALSE(MayBe({"pushpull", "operator.mnist.ml.pushpull"}, "worker-0"));
  EXPECT_FALSE(MayBe({"pushpull", "coordinator.mnist.ml.pushpull"}, "server-0"));
}

TEST(PeerIdentityTest, AMembersNameOutweighsAJobsName) {
  EXPECT_FALSE(Manages({"pushpull", "mnist.ml.pushpull", "worker-0.mnist.ml.pushpull"}));
}

TEST(PeerIdentityTest, SeveralMembersNamesAreSeveralMembers) {
  const Names both = {"pushpull", "worker-0.mnist.ml.pushpull", "server-0.mnist.ml.pushpull"};

  EXPECT_TRUE(MayBe(both, "worker-0"));
  EXPECT_TRUE(MayBe(both, "server-0"));
  EXPECT_FALSE(MayBe(both, "worker-1"));
}

TEST(PeerIdentityTest, LettersCaseAndOtherNamesDoNotCount) {
  const Names worker = {"Pushpull", "mnist-worker-3.ml.svc", "Worker-3.MNIST.ml.PUSHPULL"};

  EXPECT_TRUE(MayBe(worker, "worker-3"));
  EXPECT_FALSE(MayBe(worker, "worker-0"));
}

TEST(PeerIdentityTest, WithoutTlsEverybodyMayBeAnybody) {
  EXPECT_TRUE(PeerIdentity::Anybody().CheckIs("server-0").ok());
  EXPECT_TRUE(PeerIdentity::Anybody().CheckManages("resize the job").ok());
}

TEST(PeerIdentityTest, RefusalsSayWhoseWhatAndWhatToDo) {
  const PeerIdentity worker = Identity({"pushpull", "worker-3.mnist.ml.pushpull"});

  EXPECT_EQ(worker.CheckIs("server-0").code(), kDenied);
  EXPECT_THAT(std::string(worker.CheckIs("server-0").message()),
              AllOf(HasSubstr("worker-3.mnist.ml.pushpull"),
                    HasSubstr("server-0"),
                    HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_EQ(worker.CheckManages("resize the job").code(), kDenied);
  EXPECT_THAT(std::string(worker.CheckManages("resize the job").message()),
              AllOf(HasSubstr("worker-3.mnist.ml.pushpull"),
                    HasSubstr("resize the job"),
                    HasSubstr("TrainingJob")));
}

// ---- names that are none ----

TEST(PeerIdentityTest, ACertificateOfSomethingElseIsRefused) {
  for (const Names& names : {Names{},
                             Names{"web.example"},
                             Names{"pushpull.example"},
                             Names{"notpushpull"},
                             Names{"pushpull "}}) {
    EXPECT_EQ(PeerIdentity::Of(names).status().code(), kDenied);
  }
}

TEST(PeerIdentityTest, NamesOfAnotherFormAreRefused) {
  for (const char* name : {"x.pushpull",
                           ".pushpull",
                           "router.mnist.ml.pushpull",
                           "worker.mnist.ml.pushpull",
                           "worker-.mnist.ml.pushpull",
                           "worker-01.mnist.ml.pushpull",
                           "worker-+1.mnist.ml.pushpull",
                           "worker-4294967296.mnist.ml.pushpull",
                           "worker-1.a.mnist.ml.pushpull",
                           "worker-1..ml.pushpull",
                           "*.mnist.ml.pushpull",
                           "*.ml.pushpull",
                           "mni\nst.ml.pushpull"}) {
    const absl::Status why = PeerIdentity::Of({"pushpull", name}).status();
    EXPECT_EQ(why.code(), kDenied) << name;
    EXPECT_EQ(why.message().find('\n'), absl::string_view::npos);
  }
}

// ---- other jobs ----

TEST(PeerIdentityTest, NamesOfAnotherJobAreRefused) {
  const Names own = {"pushpull", "server-0.mnist.ml.pushpull"};

  EXPECT_EQ(Admission({"pushpull", "worker-0.mnist.ml.pushpull"}, own), kOk);
  EXPECT_EQ(Admission({"mnist.ml.pushpull"}, own), kOk);
  EXPECT_EQ(Admission({"pushpull"}, own), kOk);
  EXPECT_EQ(Admission({"pushpull", "worker-0.mnist.other.pushpull"}, own), kDenied);
  EXPECT_EQ(Admission({"pushpull", "worker-0.other.ml.pushpull"}, own), kDenied);
  EXPECT_EQ(Admission({"pushpull", "other.ml.pushpull"}, own), kDenied);
}

TEST(PeerIdentityTest, OneThatNamesNoJobAdmitsEveryJob) {
  EXPECT_EQ(Admission({"pushpull", "worker-0.mnist.ml.pushpull"}, {"pushpull"}), kOk);
}

TEST(PeerIdentityTest, ARoleInAnotherJobIsNoneInThisOne) {
  const Names both = {"pushpull", "worker-0.mnist.ml.pushpull", "coordinator.other.ml.pushpull"};

  const auto peer = AdmitPeer(both, Identity({"pushpull", "coordinator.mnist.ml.pushpull"}));

  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_FALSE(peer->CheckManages("resize the job").ok());
  EXPECT_TRUE(peer->CheckIs("worker-0").ok());
}

TEST(PeerIdentityTest, AJobsNameBesideAMembersOfAnotherIsNoRole) {
  const Names mixed = {"mnist.ml.pushpull", "worker-0.other.ml.pushpull"};

  const auto peer = AdmitPeer(mixed, Identity({"mnist.ml.pushpull"}));

  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_FALSE(peer->CheckIs("worker-0").ok());
  EXPECT_FALSE(peer->CheckManages("resize the job").ok());
}

TEST(PeerIdentityTest, NamesAreMadeAsTheyAreRead) {
  EXPECT_EQ(MemberCertificateName("worker-3", "mnist", "ml"), "worker-3.mnist.ml.pushpull");
  EXPECT_TRUE(MayBe({MemberCertificateName("worker-3", "mnist", "ml")}, "worker-3"));
  EXPECT_EQ(Identity({JobCertificateName("mnist", "ml")}).ToText(), "mnist.ml.pushpull");
}

}  // namespace
}  // namespace pushpull
