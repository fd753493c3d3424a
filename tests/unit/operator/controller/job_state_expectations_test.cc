// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "operator/controller/job_state.h"

namespace pushpull_operator {
namespace {

constexpr WallTime kObservedAt{std::chrono::seconds(1000)};

// The job at this version, with one pod of this uid where there is one.
class Cache {
 public:
  explicit Cache(const std::string& version, const std::string& pod_uid = "") {
    stored_.meta.resource_version = version;
    if (pod_uid.empty()) return;
    auto pod = std::make_shared<Stored<Pod>>();
    pod->meta = PodOf(pod_uid);
    pods_.push_back(std::move(pod));
  }
  static ObjectMeta PodOf(const std::string& uid) {
    return {.key = {.object_namespace = "n", .name = "mnist-server-0"}, .uid = uid};
  }
  ObservedJob At(WallTime now) const { return {.stored = stored_, .pods = pods_, .now = now}; }

 private:
  Stored<TrainingJobObject> stored_;
  std::vector<PodStore::Pointer> pods_;
};

TEST(ExpectationsTest, WithoutAWriteTheyAreMet) {
  EXPECT_TRUE(Expectations().AreMet(Cache("7").At(kObservedAt)));
}

TEST(ExpectationsTest, AnUpdateIsMetByAnotherVersion) {
  Expectations expectations;
  expectations.ExpectUpdate("7", kObservedAt);

  EXPECT_FALSE(expectations.AreMet(Cache("7").At(kObservedAt)));
  EXPECT_TRUE(expectations.AreMet(Cache("8").At(kObservedAt)));
}

TEST(ExpectationsTest, APodIsMetByItsUidOnly) {
  Expectations expectations;
  expectations.ExpectPod(Cache::PodOf("new"), kObservedAt);

  EXPECT_FALSE(expectations.AreMet(Cache("7").At(kObservedAt)));
  EXPECT_FALSE(expectations.AreMet(Cache("7", "old").At(kObservedAt)));
  EXPECT_TRUE(expectations.AreMet(Cache("7", "new").At(kObservedAt)));
  EXPECT_TRUE(expectations.AreMet(Cache("7").At(kObservedAt)));
}

TEST(ExpectationsTest, AWriteThatNeverShowsExpires) {
  Expectations expectations;
  expectations.ExpectUpdate("7", kObservedAt);
  expectations.ExpectPod(Cache::PodOf("gone"), kObservedAt);
  const Cache cache("7");

  EXPECT_FALSE(expectations.AreMet(
      cache.At(kObservedAt + Expectations::kTimeout - std::chrono::seconds(1))));
  EXPECT_TRUE(expectations.AreMet(cache.At(kObservedAt + Expectations::kTimeout)));
}

}  // namespace
}  // namespace pushpull_operator
