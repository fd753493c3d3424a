// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/store.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// uid and version are given as "u1" and "7".
Object Make(const std::string& name,
            const std::string& uid,
            const std::string& version,
            const std::string& job = "") {
  Object object{.meta = {.key = {.object_namespace = "n", .name = name},
                         .uid = uid,
                         .resource_version = version}};
  if (!job.empty()) object.meta.labels["job"] = job;
  return object;
}

class StoreTest : public testing::Test {
 protected:
  void List(std::vector<Object> objects) {
    store_.BeginListing();
    for (Object& object : objects) store_.AddListed(std::move(object));
    store_.EndListing();
  }
  // What was told since the last call: "+a@7", "-a@7", "a@7>a@8".
  std::vector<std::string> Told() { return std::exchange(told_, {}); }
  static std::string Describe(const Stored<std::string>& stored) {
    return stored.meta.key.name + "@" + stored.meta.resource_version;
  }

  std::vector<std::string> told_;
  int num_decoded_ = 0;
  Store<std::string> store_{{
      .decode = [this](const Object& object) -> absl::StatusOr<std::string> {
        ++num_decoded_;
        if (object.meta.key.name == "bad") return absl::DataLossError("spec is no object");
        return "value of " + object.meta.key.name;
      },
      .index =
          [](const ObjectMeta& meta) {
            const auto job = meta.labels.find("job");
            return job == meta.labels.end() ? "" : meta.key.object_namespace + "/" + job->second;
          },
      .on_change =
          [this](const Stored<std::string>* old, const Stored<std::string>* now) {
            told_.push_back(old == nullptr   ? "+" + Describe(*now)
                            : now == nullptr ? "-" + Describe(*old)
                                             : Describe(*old) + ">" + Describe(*now));
          },
  }};
};

TEST_F(StoreTest, ChangesAreNotifiedWithOldAndNew) {
  store_.Apply(Make("a", "u1", "1"));
  store_.Apply(Make("a", "u1", "2"));
  store_.Remove(Make("a", "u1", "3"));

  EXPECT_THAT(Told(), ElementsAre("+a@1", "a@1>a@2", "-a@2"));
  EXPECT_EQ(store_.Find({.object_namespace = "n", .name = "a"}), nullptr);
}

TEST_F(StoreTest, ARelistNotifiesDifferencesOnly) {
  List({Make("a", "u1", "1"), Make("b", "u2", "1"), Make("c", "u3", "1")});
  Told();
  num_decoded_ = 0;

  List({Make("a", "u1", "1"), Make("b", "u2", "5"), Make("d", "u4", "6")});

  EXPECT_THAT(Told(), ElementsAre("-c@1", "b@1>b@5", "+d@6"));
  EXPECT_EQ(num_decoded_, 2);
  EXPECT_EQ(store_.All().size(), 3u);
}

TEST_F(StoreTest, ARestartedListDropsItsObjects) {
  store_.BeginListing();
  store_.AddListed(Make("gone", "u1", "1"));

  List({Make("a", "u2", "2")});

  EXPECT_THAT(Told(), ElementsAre("+a@2"));
}

TEST_F(StoreTest, ARecreatedObjectIsADeleteAndACreate) {
  List({Make("a", "u1", "1")});
  Told();

  List({Make("a", "u2", "9")});

  EXPECT_THAT(Told(), ElementsAre("-a@1", "+a@9"));
}

TEST_F(StoreTest, TheIndexFollowsChanges) {
  store_.Apply(Make("a", "u1", "1", "mnist"));
  store_.Apply(Make("b", "u2", "2", "mnist"));
  store_.Apply(Make("c", "u3", "3"));
  EXPECT_THAT(store_.FindByIndex("n/mnist"), SizeIs(2));

  store_.Apply(Make("a", "u1", "4", "other"));
  store_.Remove(Make("b", "u2", "5"));

  EXPECT_THAT(store_.FindByIndex("n/mnist"), IsEmpty());
  EXPECT_THAT(store_.FindByIndex("n/other"), SizeIs(1));
  EXPECT_EQ(store_.All().size(), 2u);
}

TEST_F(StoreTest, UndecodableObjectsAreKeptWithTheReason) {
  store_.Apply(Make("bad", "u1", "1"));

  const auto stored = store_.Find({.object_namespace = "n", .name = "bad"});
  ASSERT_NE(stored, nullptr);
  EXPECT_TRUE(absl::IsDataLoss(stored->decoded));
  EXPECT_EQ(stored->meta.uid, "u1");
}

TEST_F(StoreTest, ItIsSyncedAfterTheFirstList) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      store_.AwaitSynced(pushpull::Deadline::After(std::chrono::seconds(0)))));
  std::thread writer([this] { List({}); });

  EXPECT_TRUE(store_.AwaitSynced(pushpull::Deadline::After(std::chrono::seconds(20))).ok());
  writer.join();
}

}  // namespace
}  // namespace pushpull_operator
