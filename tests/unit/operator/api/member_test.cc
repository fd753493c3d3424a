// SPDX-License-Identifier: Apache-2.0
#include "operator/api/member.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using pushpull::JobRole;

TEST(MemberTest, NamesAreThoseThatUsersRelyOn) {
  EXPECT_EQ(PodName("mnist", {JobRole::kCoordinator, 0}), "mnist-coordinator");
  EXPECT_EQ(PodName("mnist", {JobRole::kServer, 2}), "mnist-server-2");
  EXPECT_EQ(PodName("mnist", {JobRole::kWorker, 11}), "mnist-worker-11");
}

TEST(MemberTest, ANameSaysWhichMemberAPodIs) {
  for (const MemberId member : {MemberId{JobRole::kCoordinator, 0},
                                MemberId{JobRole::kServer, 0},
                                MemberId{JobRole::kWorker, 4095}}) {
    EXPECT_EQ(MemberOfPod("a-server-1", PodName("a-server-1", member)), member);
  }
  for (const char* name : {"",
                           "-",
                           "mnist",
                           "mnist-server",
                           "mnist-server-",
                           "mnist-server-01",
                           "mnist-server--1",
                           "other-server-1",
                           "mnist-master-1"}) {
    EXPECT_EQ(MemberOfPod("mnist", name), std::nullopt) << name;
  }
}

TEST(MemberTest, LabelsSayWhichMemberAPodIs) {
  for (const MemberId member : {MemberId{JobRole::kCoordinator, 0},
                                MemberId{JobRole::kServer, 1023},
                                MemberId{JobRole::kWorker, 4095}}) {
    EXPECT_EQ(MemberOf(MemberLabels("mnist", member)), member);
  }
  const std::map<std::string, std::string> labels = MemberLabels("mnist", {JobRole::kServer, 1});
  EXPECT_EQ(labels.at("app.kubernetes.io/component"), "server");
  EXPECT_EQ(labels.at("pushpull.dev/job"), "mnist");
  EXPECT_EQ(labels.at("pushpull.dev/index"), "1");
  EXPECT_EQ(SelectorOf("mnist", JobRole::kServer),
            "pushpull.dev/job=mnist,app.kubernetes.io/component=server");
}

TEST(MemberTest, OtherLabelsAreNoMember) {
  EXPECT_EQ(MemberOf({}), std::nullopt);
  EXPECT_EQ(MemberOf(JobLabels("mnist")), std::nullopt);
  for (const char* index : {"", "-1", "x", "99999999999"}) {
    std::map<std::string, std::string> labels = MemberLabels("mnist", {JobRole::kServer, 1});
    labels[kIndexLabel] = index;
    EXPECT_EQ(MemberOf(labels), std::nullopt) << index;
  }
  std::map<std::string, std::string> labels = MemberLabels("mnist", {JobRole::kServer, 1});
  labels[kComponentLabel] = "master";
  EXPECT_EQ(MemberOf(labels), std::nullopt);
}

}  // namespace
}  // namespace pushpull_operator
