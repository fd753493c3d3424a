// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/kube/client.h"
#include "runtime/base/mutex.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::Deadline;
using pushpull::MutexLock;
using testing::ElementsAre;

const ResourceType kWatchedPods{.version = "v1", .plural = "pods"};

ObjectKey Key(const std::string& name) {
  return {.object_namespace = "n", .name = name};
}

// A watch on a thread of its own, and what it has seen.
class Watching {
 public:
  Watching(KubeClient& client, const std::string& version, const std::string& selector = "")
      : thread_([this, &client, version, selector] {
          const absl::Status status = client.Watch(
              kWatchedPods,
              {.selection = {.label_selector = selector}, .resource_version = version},
              [this](const WatchEvent& event) { return Note(event); },
              cancellation_);
          MutexLock lock(mu_);
          status_ = status;
          is_over_ = true;
          changed_.NotifyAll();
        }) {}
  ~Watching() {
    cancellation_.Cancel();
    thread_.join();
  }

  // The first `count` events, "A name", "M name", "D name", "B version".
  std::vector<std::string> Events(size_t count) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(20));
    MutexLock lock(mu_);
    while (events_.size() < count && !is_over_ && changed_.WaitUntil(mu_, deadline)) {
    }
    return events_;
  }

  absl::Status End() {
    const Deadline deadline = Deadline::After(std::chrono::seconds(20));
    MutexLock lock(mu_);
    while (!is_over_) {
      if (!changed_.WaitUntil(mu_, deadline)) return absl::InternalError("the watch does not end");
    }
    return status_;
  }

  void Cancel() { cancellation_.Cancel(); }

 private:
  absl::Status Note(const WatchEvent& event) {
    MutexLock lock(mu_);
    const ObjectMeta& meta = event.object.meta;
    const bool is_bookmark = event.type == WatchEventType::kBookmark;
    const char letter = "AMDB"[static_cast<int>(event.type)];
    events_.push_back(std::string(1, letter) + " " +
                      (is_bookmark ? meta.resource_version : meta.key.name));
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  Cancellation cancellation_;
  pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses all of the above
};

// What the client has told of objects that it skipped.
class Skipped {
 public:
  void Note(const absl::Status& why) {
    MutexLock lock(mu_);
    texts_.emplace_back(why.message());
  }
  std::vector<std::string> Take() {
    MutexLock lock(mu_);
    return std::move(texts_);
  }

 private:
  pushpull::Mutex mu_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
};

class ClientWatchTest : public testing::Test {
 protected:
  Skipped skipped_;
  FakeApiServer server_;
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_ = *Credentials::Create(server_.access(), time_);
  KubeClient client_{*credentials_, time_, {.on_skipped = [this](const absl::Status& why) {
                       skipped_.Note(why);
                     }}};
};

TEST_F(ClientWatchTest, ChangesArriveInOrder) {
  Watching watching(client_, "100");
  server_.Put(kWatchedPods, Key("a"), json::object());
  server_.Put(kWatchedPods, Key("a"), {{"x", 1}});
  server_.Remove(kWatchedPods, Key("a"));
  ASSERT_EQ(watching.Events(3).size(), 3u);
  server_.SendBookmarks();

  EXPECT_THAT(watching.Events(4), ElementsAre("A a", "M a", "D a", "B 103"));
}

TEST_F(ClientWatchTest, TheLabelSelectorFiltersEvents) {
  Watching watching(client_, "100", "job=x");
  const json labelled{{"metadata", {{"labels", {{"job", "x"}}}}}};
  server_.Put(kWatchedPods, Key("other"), json::object());
  server_.Put(kWatchedPods, Key("a"), labelled);
  server_.Put(kWatchedPods, Key("a"), {{"metadata", {{"labels", {{"job", "y"}}}}}});

  EXPECT_THAT(watching.Events(2), ElementsAre("A a", "D a"));
}

TEST_F(ClientWatchTest, FramesMayBeSplitAnywhere) {
  Watching watching(client_, "100");
  ASSERT_TRUE(server_.AwaitWatches(1));
  const std::string name(100'000, 'x');
  const std::string frames = R"({"type":"ADDED","object":{"metadata":{"name":"a"}}})"
                             "\n"
                             R"({"type":"FUTURE","object":{}})"
                             "\n";
  server_.SendOnWatches(frames, 1);
  server_.SendOnWatches(R"({"type":"ADDED","object":{"metadata":{"name":")" + name + "\"}}}\n",
                        999);

  EXPECT_THAT(watching.Events(2), ElementsAre("A a", "A " + name));
}

TEST_F(ClientWatchTest, ATooOldVersionIsOutOfRange) {
  server_.Compact();

  Watching watching(client_, "100");

  EXPECT_TRUE(absl::IsOutOfRange(watching.End())) << watching.End();
}

TEST_F(ClientWatchTest, RefusalsKeepTheServersCode) {
  server_.InjectFaults([](const FakeRequest&) {
    return Fault{.kind = Fault::Kind::kAnswer, .code = 429, .retry_after_seconds = 9};
  });

  Watching watching(client_, "100");

  EXPECT_TRUE(absl::IsResourceExhausted(watching.End())) << watching.End();
  EXPECT_EQ(ApiErrorOf(watching.End())->retry_after, std::chrono::seconds(9));
}

TEST_F(ClientWatchTest, AnOrderlyEndIsOk) {
  Watching watching(client_, "100");
  ASSERT_TRUE(server_.AwaitWatches(1));

  server_.EndWatches();

  EXPECT_TRUE(watching.End().ok()) << watching.End();
}

TEST_F(ClientWatchTest, CancelEndsAnIdleWatch) {
  Watching watching(client_, "100");
  ASSERT_TRUE(server_.AwaitWatches(1));

  watching.Cancel();

  EXPECT_TRUE(absl::IsCancelled(watching.End())) << watching.End();
}

TEST_F(ClientWatchTest, GarbageIsDataLoss) {
  Watching watching(client_, "100");
  ASSERT_TRUE(server_.AwaitWatches(1));

  server_.SendOnWatches("nonsense\n", 3);

  EXPECT_TRUE(absl::IsDataLoss(watching.End())) << watching.End();
}

TEST_F(ClientWatchTest, AnObjectThatCannotBeReadEndsNoWatch) {
  Watching watching(client_, "100");
  ASSERT_TRUE(server_.AwaitWatches(1));
  const std::string deep = std::string(300, '[') + std::string(300, ']');

  for (const std::string& object : {std::string("7"),
                                    std::string(R"({"metadata":null})"),
                                    std::string(R"({"metadata":{"labels":{}}})"),
                                    R"({"metadata":{"name":"deep"},"spec":)" + deep + "}",
                                    std::string(R"({"metadata":{"name":"a"}})")}) {
    const std::string frame = R"({"type":"ADDED","object":)" + object + "}\n";
    server_.SendOnWatches(frame, frame.size());
  }

  EXPECT_THAT(watching.Events(2), ElementsAre("A deep", "A a"));
  EXPECT_THAT(skipped_.Take(),
              ElementsAre("watch pods: the API server sent an object without metadata",
                          "watch pods: the API server sent an object without metadata",
                          "watch pods: the API server sent an object without a name"));
}

TEST_F(ClientWatchTest, ABrokenConnectionIsUnavailable) {
  server_.InjectFaults([](const FakeRequest&) { return Fault{Fault::Kind::kDropBefore}; });

  Watching watching(client_, "100");

  EXPECT_TRUE(absl::IsUnavailable(watching.End())) << watching.End();
}

}  // namespace
}  // namespace pushpull_operator
