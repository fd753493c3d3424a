// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflector.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "operator/cache/store.h"
#include "runtime/base/mutex.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::Deadline;
using pushpull::MutexLock;
using std::chrono::seconds;

const ResourceType kPods{.version = "v1", .plural = "pods"};

ObjectKey Key(const std::string& name) {
  return {.object_namespace = "n", .name = name};
}

json Labelled(const char* value) {
  return {{"metadata", {{"labels", {{"ours", value}}}}}};
}

// A reflector on a thread of its own and what its store was told.
class ReflectorTest : public testing::Test {
 protected:
  void Start() {
    thread_ = std::thread([this] { reflector_.Run(cancellation_); });
  }

  void TearDown() override {
    cancellation_.Cancel();
    if (thread_.joinable()) thread_.join();
  }

  // Waits until the store has been told of this many changes in all.
  bool AwaitChanges(int count) {
    const Deadline deadline = Deadline::After(seconds(20));
    MutexLock lock(mu_);
    while (changes_ < count) {
      if (!changed_.WaitUntil(mu_, deadline)) return changes_ >= count;
    }
    return true;
  }
  int deletes() {
    MutexLock lock(mu_);
    return deletes_;
  }
  bool AwaitSynced() { return store_.AwaitSynced(Deadline::After(seconds(20))).ok(); }
  int num_lists() const { return server_.CountRequests("GET"); }

  void Note(const Stored<int>* now) {
    MutexLock lock(mu_);
    ++changes_;
    if (now == nullptr) ++deletes_;
    changed_.NotifyAll();
  }

  FakeApiServer server_;
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_ = *Credentials::Create(server_.access(), time_);
  // The faults come faster than any limit would let them.
  KubeClient client_{*credentials_, time_, {.rate_limit = {.qps = 1e6, .burst = 1000}}};

  pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  int changes_ ABSL_GUARDED_BY(mu_) = 0;
  int deletes_ ABSL_GUARDED_BY(mu_) = 0;
  Store<int> store_{
      {.decode = [](const Object&) -> absl::StatusOr<int> { return 0; },
       .on_change = [this](const Stored<int>*, const Stored<int>* now) { Note(now); }}};
  Cancellation cancellation_;
  Reflector reflector_{
      client_, time_, store_, {.type = kPods, .selection = {.label_selector = "ours=yes"}}};
  std::thread thread_;
};

TEST_F(ReflectorTest, TheStoreMirrorsTheServer) {
  server_.Put(kPods, Key("a"), Labelled("yes"));
  Start();
  ASSERT_TRUE(AwaitSynced());

  server_.Put(kPods, Key("b"), Labelled("yes"));
  server_.Put(kPods, Key("a"), Labelled("no"));

  ASSERT_TRUE(AwaitChanges(3));
  EXPECT_EQ(store_.Find(Key("a")), nullptr);
  EXPECT_NE(store_.Find(Key("b")), nullptr);
  EXPECT_EQ(num_lists(), 1);
}

TEST_F(ReflectorTest, UnselectedObjectsAreNotStored) {
  for (int i = 0; i < 1000; ++i) {
    server_.Put(kPods, Key("other" + std::to_string(i)), Labelled("no"));
  }
  server_.Put(kPods, Key("a"), Labelled("yes"));
  Start();
  ASSERT_TRUE(AwaitSynced());
  for (int i = 0; i < 1000; ++i) {
    server_.Put(kPods, Key("other" + std::to_string(i)), Labelled("still no"));
  }
  server_.Put(kPods, Key("b"), Labelled("yes"));

  ASSERT_TRUE(AwaitChanges(2));
  EXPECT_EQ(store_.All().size(), 2u);
}

TEST_F(ReflectorTest, AnOutageDoesNotRelist) {
  Start();
  ASSERT_TRUE(AwaitSynced());
  ASSERT_TRUE(server_.AwaitWatches(1));
  auto failures = std::make_shared<std::atomic<int>>(1000);
  server_.InjectFaults([failures](const FakeRequest&) {
    const int left = (*failures)--;
    if (left <= 0) return Fault{};
    if (left % 3 == 0) return Fault{.kind = Fault::Kind::kDropBefore};
    const int code = left % 3 == 1 ? 429 : 503;
    return Fault{.kind = Fault::Kind::kAnswer, .code = code, .retry_after_seconds = 1};
  });
  server_.EndWatches();
  ASSERT_TRUE(server_.AwaitWatches(2));

  server_.Put(kPods, Key("a"), Labelled("yes"));

  EXPECT_TRUE(AwaitChanges(1));
  EXPECT_EQ(num_lists(), 1);
}

TEST_F(ReflectorTest, ARelistReportsMissedDeletes) {
  server_.Put(kPods, Key("a"), Labelled("yes"));
  server_.Put(kPods, Key("b"), Labelled("yes"));
  Start();
  ASSERT_TRUE(AwaitChanges(2));
  ASSERT_TRUE(server_.AwaitWatches(1));
  auto is_down = std::make_shared<std::atomic<bool>>(true);
  server_.InjectFaults([is_down](const FakeRequest&) {
    return *is_down ? Fault{.kind = Fault::Kind::kDropBefore} : Fault{};
  });
  server_.EndWatches();
  server_.Remove(kPods, Key("a"));
  server_.Compact();

  *is_down = false;

  ASSERT_TRUE(AwaitChanges(3));
  EXPECT_EQ(deletes(), 1);
  EXPECT_EQ(store_.Find(Key("a")), nullptr);
  EXPECT_EQ(num_lists(), 2);
}

TEST_F(ReflectorTest, ABookmarkAvoidsARelist) {
  Start();
  ASSERT_TRUE(AwaitSynced());
  ASSERT_TRUE(server_.AwaitWatches(1));
  // The watch sees nothing of the others' objects but the version that they have moved.
  server_.Compact();
  server_.SendBookmarks();
  server_.EndWatches();
  ASSERT_TRUE(server_.AwaitWatches(2));

  server_.Put(kPods, Key("a"), Labelled("yes"));

  EXPECT_TRUE(AwaitChanges(1));
  EXPECT_EQ(num_lists(), 1);
}

TEST_F(ReflectorTest, AnObjectThatCannotBeReadCausesNoListing) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  server_.Put(kPods, Key("a"), Labelled("yes"));
  Start();
  ASSERT_TRUE(AwaitChanges(1));
  ASSERT_TRUE(server_.AwaitWatches(1));

  for (const std::string& object :
       {std::string("[]"),
        std::string(R"({"metadata":{}})"),
        R"({"metadata":{"namespace":"n","name":"deep"},"spec":)" + deep + "}"}) {
    const std::string frame = R"({"type":"ADDED","object":)" + object + "}\n";
    server_.SendOnWatches(frame, frame.size());
  }
  ASSERT_TRUE(AwaitChanges(2));
  server_.Put(kPods, Key("b"), Labelled("yes"));

  ASSERT_TRUE(AwaitChanges(3));
  EXPECT_NE(store_.Find(Key("deep")), nullptr);
  EXPECT_EQ(num_lists(), 1);
  EXPECT_EQ(server_.CountRequests("WATCH"), 1);
}

TEST_F(ReflectorTest, AThousandTooOldVersionsLoseNoObject) {
  server_.Put(kPods, Key("a"), Labelled("yes"));
  auto failures = std::make_shared<std::atomic<int>>(1000);
  server_.InjectFaults([failures](const FakeRequest& request) {
    return request.is_watch() && (*failures)-- > 0
               ? Fault{.kind = Fault::Kind::kAnswer, .code = 410}
               : Fault{};
  });
  Start();
  ASSERT_TRUE(server_.AwaitWatches(1));

  server_.Put(kPods, Key("b"), Labelled("yes"));

  ASSERT_TRUE(AwaitChanges(2));
  EXPECT_EQ(deletes(), 0);
  EXPECT_EQ(num_lists(), 1001);
  EXPECT_EQ(store_.All().size(), 2u);
}

}  // namespace
}  // namespace pushpull_operator
