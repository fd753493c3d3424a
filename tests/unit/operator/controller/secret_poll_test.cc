// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/secret_poll.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/children/tls_secret.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

ObjectKey PolledKey(const std::string& name) {
  return {.object_namespace = "n", .name = name};
}

class SecretPollTest : public testing::Test {
 protected:
  void PutJob(const std::string& name, const std::string& phase, const json& security) {
    const json job{{"metadata", {{"name", name}, {"namespace", "n"}, {"resourceVersion", phase}}},
                   {"spec", {{"image", "i"}, {"security", security}}},
                   {"status", {{"phase", phase}}}};
    jobs_.Apply(*DecodeObject(job, ""));
  }
  // The paths that one look asked for.
  std::vector<std::string> Look() {
    const size_t before = server_.requests().size();
    poll_.LookOnce(Cancellation());
    std::vector<std::string> paths;
    for (size_t i = before; i < server_.requests().size(); ++i)
      paths.push_back(server_.requests()[i].method + " " + server_.requests()[i].path);
    return paths;
  }

  FakeApiServer server_;
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_ = *Credentials::Create(server_.access(), time_);
  KubeClient client_{*credentials_, time_, {.rate_limit = {.qps = 1e6, .burst = 1000}}};
  JobStore jobs_{{.decode = DecodeTrainingJobObject}};
  std::vector<std::string> told_;
  ChildCache children_{[this](const std::string& job) { told_.push_back(job); }};
  SecretPoll poll_{client_, time_, jobs_, children_, {}};
};

TEST_F(SecretPollTest, OnlyOwnSecretsOfRunningJobsAreLookedUpByName) {
  PutJob("asleep", "Suspended", json::object());
  PutJob("over", "Succeeded", json::object());
  PutJob("plain", "Running", {{"tls", "Off"}});
  PutJob("runs", "Running", json::object());
  PutJob("users", "Running", {{"secretName", "mine"}});

  EXPECT_THAT(Look(), ElementsAre("GET /api/v1/namespaces/n/secrets/runs-tls"));
}

TEST_F(SecretPollTest, AChangeIsToldOnce) {
  PutJob("runs", "Running", json::object());
  Look();
  EXPECT_THAT(told_, ElementsAre("n/runs"));  // there is none
  server_.Put(SecretType(), PolledKey("runs-tls"), {{"data", {{"a", "YQ=="}}}});
  told_.clear();

  Look();
  Look();

  EXPECT_THAT(told_, ElementsAre("n/runs"));
  told_.clear();
  server_.InjectFaults(
      [](const FakeRequest&) { return Fault{.kind = Fault::Kind::kAnswer, .code = 403}; });
  Look();
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(SecretPollTest, ManyJobsAreLookedUpOneByOne) {
  for (int i = 0; i < 20; ++i) PutJob("runs-" + std::to_string(i), "Running", json::object());
  const pushpull::SteadyTime begin = time_.Now();

  EXPECT_EQ(Look().size(), 20U);

  EXPECT_EQ(time_.Now() - begin, 20 * SecretPace{}.pause);
}

}  // namespace
}  // namespace pushpull_operator
