// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/object_maker.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using pushpull::JobRole;

constexpr MemberStart kServer{.member = {.role = JobRole::kServer, .index = 2}};

class ObjectMakerTest : public testing::Test {
 protected:
  ObjectMeta OwnerOf(const std::string& uid) {
    return {.key = {.object_namespace = "n", .name = "mnist"}, .uid = uid};
  }

  FakeApiServer server_;
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_ = *Credentials::Create(server_.access(), time_);
  KubeClient client_{*credentials_, time_, {}};
  ObjectMaker maker_{client_, {.runtime_image = "pushpull:1"}};
  const TrainingJobObject job_ = DecodeTrainingJobObject(
      *ParseObject(R"({"metadata":{"name":"mnist","namespace":"n"},"spec":{"image":"i"}})"));
};

// As after an answer that was lost, while the cache does not show the pod yet.
TEST_F(ObjectMakerTest, APodThatWasMadeBeforeIsTheJobs) {
  const auto first = maker_.EnsurePod(OwnerOf("job-1"), job_, kServer);
  ASSERT_TRUE(first.ok()) << first.status();

  const auto again = maker_.EnsurePod(OwnerOf("job-1"), job_, kServer);

  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->uid, first->uid);
}

TEST_F(ObjectMakerTest, APodOfAnEarlierJobOfTheNameIsNot) {
  ASSERT_TRUE(maker_.EnsurePod(OwnerOf("job-1"), job_, kServer).ok());

  const auto made = maker_.EnsurePod(OwnerOf("job-2"), job_, kServer);

  EXPECT_TRUE(absl::IsAlreadyExists(made.status())) << made.status();
}

TEST_F(ObjectMakerTest, ADryRunCreatesNothing) {
  EXPECT_TRUE(maker_.DryRunPods(OwnerOf("job-1"), job_).ok());

  EXPECT_EQ(server_.CountRequests("POST"), 3);
  EXPECT_EQ(server_.CountObjects(), 0U);
}

// A real pod's unknown field is only dropped, and the user waits for what it should have done.
TEST_F(ObjectMakerTest, ADryRunIsStrictAndARealPodIsNot) {
  std::vector<std::string> validations;
  server_.InjectFaults([&](const FakeRequest& request) {
    const auto validation = request.query.find("fieldValidation");
    if (request.method == "POST")
      validations.push_back(validation == request.query.end() ? "" : validation->second);
    return Fault{};
  });

  EXPECT_TRUE(maker_.DryRunPods(OwnerOf("job-1"), job_).ok());
  EXPECT_TRUE(maker_.EnsurePod(OwnerOf("job-1"), job_, kServer).ok());

  EXPECT_EQ(validations, (std::vector<std::string>{"Strict", "Strict", "Strict", ""}));
}

TEST_F(ObjectMakerTest, ARefusedDryRunNamesTheRole) {
  server_.InjectFaults([](const FakeRequest& request) {
    const bool is_server = request.body.find("mnist-server-0") != std::string::npos;
    return is_server ? Fault{.kind = Fault::Kind::kAnswer, .code = 400} : Fault{};
  });

  const absl::Status refused = maker_.DryRunPods(OwnerOf("job-1"), job_);

  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("spec.servers"), absl::string_view::npos) << refused;
}

}  // namespace
}  // namespace pushpull_operator
