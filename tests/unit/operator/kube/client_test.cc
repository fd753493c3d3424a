// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/client.h"

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_certificates.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using nlohmann::json;
using pushpull::Deadline;
using pushpull::FakeCertificate;
using pushpull::MakeAuthority;
using pushpull::MakeCertificate;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

const ResourceType kPods{.version = "v1", .plural = "pods"};
const ObjectKey kA{.object_namespace = "n", .name = "a"};

class Names final : public ListVisitor {
 public:
  void BeginListing() override {
    ++num_begins;
    names.clear();
  }
  void AddListed(Object object) override {
    names.push_back(object.meta.key.name);
    if (!object.problem.empty()) problems[object.meta.key.name] = object.problem;
  }

  int num_begins = 0;
  std::vector<std::string> names;
  std::map<std::string, std::string> problems;
};

class ClientTest : public testing::Test {
 protected:
  explicit ClientTest(ClientOptions options = {})
      : credentials_(*Credentials::Create(server_.access(), time_)),
        client_(*credentials_, time_, std::move(options)) {}

  Deadline Soon() const { return Deadline(time_.Now() + seconds(30)); }
  // The fault of the next `count` requests with `method`.
  void Inject(const std::string& method, int count, Fault fault) {
    auto left = std::make_shared<std::atomic<int>>(count);
    server_.InjectFaults([=](const FakeRequest& request) {
      return request.method == method && (*left)-- > 0 ? fault : Fault{};
    });
  }
  absl::StatusOr<ObjectMeta> CreateA() {
    return client_.Create(kPods, "n", R"({"metadata":{"name":"a"}})", DryRun::kNo, Soon());
  }

  FakeApiServer server_;
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_;
  KubeClient client_;
};

TEST_F(ClientTest, ObjectsAreCreatedReadAndDeleted) {
  const absl::StatusOr<ObjectMeta> created = CreateA();
  ASSERT_TRUE(created.ok()) << created.status();

  const absl::StatusOr<Object> read = client_.Get(kPods, kA, Soon());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->meta.uid, created->uid);
  EXPECT_TRUE(client_.Delete(kPods, kA, {.uid = created->uid}, Soon()).ok());
  EXPECT_TRUE(absl::IsNotFound(client_.Get(kPods, kA, Soon()).status()));
  EXPECT_EQ(server_.num_connections(), 1);  // kept between the calls
}

TEST_F(ClientTest, ManagedFieldsAreDropped) {
  const json notes = json::array({{{"manager", "kubectl"}, {"fieldsV1", {{"f:spec", 1}}}}});
  server_.Put(kPods, kA, {{"metadata", {{"managedFields", notes}}}, {"spec", {{"x", 1}}}});

  const absl::StatusOr<Object> read = client_.Get(kPods, kA, Soon());

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE((*read->json)["metadata"].contains("managedFields"));
  EXPECT_EQ((*read->json)["spec"], json({{"x", 1}}));
  EXPECT_EQ(read->meta.key, kA);
}

TEST_F(ClientTest, CreatingATakenNameIsAlreadyExists) {
  ASSERT_TRUE(CreateA().ok());

  EXPECT_TRUE(absl::IsAlreadyExists(CreateA().status()));
}

TEST_F(ClientTest, ADryRunCreatesNothing) {
  EXPECT_TRUE(
      client_.Create(kPods, "n", R"({"metadata":{"name":"a"}})", DryRun::kYes, Soon()).ok());

  EXPECT_EQ(server_.CountObjects(), 0u);
}

TEST_F(ClientTest, DeletePreconditionsAreChecked) {
  server_.Put(kPods, kA, json::object());

  EXPECT_TRUE(absl::IsAborted(client_.Delete(kPods, kA, {.uid = "gone"}, Soon())));
  EXPECT_TRUE(absl::IsAborted(client_.Delete(kPods, kA, {.resource_version = "1"}, Soon())));
  EXPECT_EQ(server_.CountObjects(), 1u);
}

TEST_F(ClientTest, DeleteOptionsAreSent) {
  server_.Put(kPods, kA, json::object());

  ASSERT_TRUE(
      client_.Delete(kPods, kA, {.grace = seconds(0), .propagation = "Background"}, Soon()).ok());

  const json sent = json::parse(server_.requests().back().body);
  EXPECT_EQ(sent["gracePeriodSeconds"], 0);
  EXPECT_EQ(sent["propagationPolicy"], "Background");
}

TEST_F(ClientTest, AStatusPatchKeepsUnknownFields) {
  server_.Put(kPods, kA, {{"spec", {{"future", 1}}}, {"status", {{"old", 2}}}});

  const absl::StatusOr<ObjectMeta> patched = client_.MergePatch(
      kPods, kA, R"({"spec":{"future":9},"status":{"phase":"Running"}})", "status", Soon());

  ASSERT_TRUE(patched.ok()) << patched.status();
  const json now = server_.Find(kPods, kA);
  EXPECT_EQ(now["spec"], json({{"future", 1}}));
  EXPECT_EQ(now["status"], json({{"old", 2}, {"phase", "Running"}}));
}

TEST_F(ClientTest, AnOutdatedVersionIsAConflict) {
  server_.Put(kPods, kA, json::object());
  const std::string old = client_.Get(kPods, kA, Soon())->meta.resource_version;
  server_.Put(kPods, kA, {{"x", 1}});
  const std::string body = R"({"metadata":{"name":"a","resourceVersion":")" + old + R"("}})";

  EXPECT_TRUE(absl::IsAborted(client_.Replace(kPods, kA, body, Soon()).status()));
  EXPECT_TRUE(absl::IsAborted(client_.MergePatch(kPods, kA, body, {}, Soon()).status()));
}

TEST_F(ClientTest, ApplyCreatesAndIsIdempotent) {
  const std::string body = R"({"metadata":{"name":"a"},"spec":{"x":1}})";

  const absl::StatusOr<ObjectMeta> first = client_.Apply(kPods, kA, body, Soon());
  const absl::StatusOr<ObjectMeta> second = client_.Apply(kPods, kA, body, Soon());

  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->resource_version, second->resource_version);
  const FakeRequest sent = server_.requests().back();
  EXPECT_EQ(sent.content_type, "application/apply-patch+yaml");
  EXPECT_EQ(sent.query.at("fieldManager"), "pushpull-operator");
  EXPECT_EQ(sent.query.at("force"), "true");
}

TEST_F(ClientTest, ListsArePaged) {
  for (int i = 0; i < 1234; ++i) {
    server_.Put(kPods,
                {.object_namespace = "n", .name = "p" + std::to_string(i)},
                {{"metadata", {{"labels", {{"job", i < 1200 ? "x" : "y"}}}}}});
  }
  Names names;

  const absl::StatusOr<std::string> version =
      client_.List(kPods, {.label_selector = "job=x"}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(names.names.size(), 1200u);
  EXPECT_EQ(server_.CountRequests("GET"), 3);
}

TEST_F(ClientTest, AListThatExpiresBetweenPagesRestarts) {
  for (int i = 0; i < 600; ++i) {
    server_.Put(kPods, {.object_namespace = "n", .name = "p" + std::to_string(i)}, json::object());
  }
  server_.InjectFaults([](const FakeRequest& request) {
    if (request.query.contains("continue")) return Fault{Fault::Kind::kAnswer, 410};
    return Fault{};
  });
  Names names;

  const absl::StatusOr<std::string> version = client_.List(kPods, {}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(names.names.size(), 600u);
  EXPECT_EQ(names.num_begins, 3);
}

TEST_F(ClientTest, ADeepObjectDoesNotHideTheOthers) {
  json deep = json::array();
  for (int i = 1; i < 300; ++i) deep = json::array({std::move(deep)});
  server_.Put(kPods, {.object_namespace = "n", .name = "b"}, {{"spec", std::move(deep)}});
  server_.Put(kPods, kA, json::object());
  server_.Put(kPods, {.object_namespace = "n", .name = "c"}, json::object());
  Names names;

  const absl::StatusOr<std::string> version = client_.List(kPods, {}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_THAT(names.names, ElementsAre("a", "b", "c"));
  EXPECT_THAT(names.problems, ElementsAre(testing::Pair("b", HasSubstr("nests deeper"))));
}

// One that takes answers up to 64 KiB.
class NarrowClientTest : public ClientTest {
 protected:
  NarrowClientTest() : ClientTest({.response_bytes_max = 64 << 10}) {}

  void PutPods(int count, size_t bytes) {
    for (int i = 0; i < count; ++i) PutPod(std::to_string(i), bytes);
  }
  void PutPod(const std::string& name, size_t bytes) {
    server_.Put(kPods,
                {.object_namespace = "n", .name = name},
                {{"metadata", {{"labels", {{"x", "y"}}}}}, {"spec", std::string(bytes, 's')}});
  }
};

TEST_F(NarrowClientTest, PagesThatAreTooLargeAreHalved) {
  PutPods(45, 24'000);
  Names names;

  const absl::StatusOr<std::string> version = client_.List(kPods, {}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(names.names.size(), 45u);
  EXPECT_EQ(names.num_begins, 1);
  EXPECT_TRUE(names.problems.empty());
  // At most as many pages in vain as halve 500 to 1, and then one for each page of two or three.
  EXPECT_LE(server_.CountRequests("GET"), 9 + 2 * 23);
}

TEST_F(NarrowClientTest, AnObjectThatIsTooLargeIsListedByName) {
  PutPods(9, 100);
  PutPod("4-large", 100'000);
  Names names;

  const absl::StatusOr<std::string> version = client_.List(kPods, {}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(names.names.size(), 10u);
  EXPECT_EQ(names.num_begins, 1);
  EXPECT_THAT(names.problems,
              ElementsAre(testing::Pair("4-large", "the object is larger than 64 KiB")));
}

TEST_F(NarrowClientTest, PagesGrowAgainAfterALargeObject) {
  PutPod("0-large", 100'000);
  PutPods(300, 100);
  Names names;

  const absl::StatusOr<std::string> version = client_.List(kPods, {}, names, Soon());

  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(names.names.size(), 301u);
  EXPECT_LE(server_.CountRequests("GET"), 30);
}

TEST_F(NarrowClientTest, AnAnswerThatIsTooLargeIsAskedForOnce) {
  PutPod("a", 100'000);

  const absl::Status read = client_.Get(kPods, kA, Soon()).status();

  EXPECT_TRUE(absl::IsResourceExhausted(read)) << read;
  EXPECT_EQ(server_.CountRequests("GET"), 1);
}

TEST_F(ClientTest, RetryAfterIsHonoured) {
  for (const int code : {429, 503}) {
    Inject("POST", 2, {.kind = Fault::Kind::kAnswer, .code = code, .retry_after_seconds = 4});
    const pushpull::SteadyTime begin = time_.Now();

    ASSERT_TRUE(CreateA().ok());

    EXPECT_GE(time_.Now() - begin, seconds(8));
    server_.Remove(kPods, kA);
  }
}

TEST_F(ClientTest, RetryAfterBeyondTheDeadlineIsReturned) {
  Inject("POST", 9, {.kind = Fault::Kind::kAnswer, .code = 429, .retry_after_seconds = 60});

  const absl::Status status = CreateA().status();

  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(ApiErrorOf(status)->retry_after, seconds(60));
  EXPECT_EQ(server_.CountRequests("POST"), 1);
}

TEST_F(ClientTest, SafeRequestsAreRetriedAfterALostConnection) {
  server_.Put(kPods, kA, json::object());
  const std::string uid = client_.Get(kPods, kA, Soon())->meta.uid;

  Inject("GET", 3, {.kind = Fault::Kind::kDropBefore});
  EXPECT_TRUE(client_.Get(kPods, kA, Soon()).ok());
  Inject("PATCH", 1, {.kind = Fault::Kind::kDropAfter});
  EXPECT_TRUE(client_.MergePatch(kPods, kA, R"({"x":1})", {}, Soon()).ok());
  // The first delete was done; that the object is gone is what the second finds.
  Inject("DELETE", 1, {.kind = Fault::Kind::kDropAfter});
  EXPECT_TRUE(absl::IsNotFound(client_.Delete(kPods, kA, {.uid = uid}, Soon())));
}

TEST_F(ClientTest, ACreateWithALostAnswerIsNotRetried) {
  Inject("POST", 1, {.kind = Fault::Kind::kDropAfter});

  const absl::Status status = CreateA().status();

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("create pods n"));
  EXPECT_EQ(server_.CountRequests("POST"), 1);
}

TEST_F(ClientTest, ADeleteWithoutUidIsNotRetriedAfterALostAnswer) {
  server_.Put(kPods, kA, json::object());
  Inject("DELETE", 1, {.kind = Fault::Kind::kDropAfter});

  EXPECT_TRUE(absl::IsUnavailable(client_.Delete(kPods, kA, {}, Soon())));
  EXPECT_EQ(server_.CountRequests("DELETE"), 1);
}

TEST_F(ClientTest, AHangingServerEndsAtTheDeadline) {
  Inject("GET", 1, {.kind = Fault::Kind::kHang});

  const absl::Status status =
      client_.Get(kPods, kA, Deadline(time_.Now() + std::chrono::milliseconds(50))).status();

  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(ClientTest, StopCancelsCalls) {
  client_.Stop();

  EXPECT_TRUE(absl::IsCancelled(CreateA().status()));
}

TEST_F(ClientTest, ARejectedTokenIsUnauthenticated) {
  Inject("GET", 1, {.kind = Fault::Kind::kAnswer, .code = 401});

  EXPECT_TRUE(absl::IsUnauthenticated(client_.Get(kPods, kA, Soon()).status()));
}

class LimitedClientTest : public ClientTest {
 protected:
  LimitedClientTest() : ClientTest({.rate_limit = {.qps = 2, .burst = 3}}) {}
};

TEST_F(LimitedClientTest, RequestsStayWithinTheRateLimit) {
  const pushpull::SteadyTime begin = time_.Now();

  for (int i = 0; i < 13; ++i) {
    EXPECT_TRUE(absl::IsNotFound(client_.Get(kPods, kA, Soon()).status()));
  }

  EXPECT_EQ(time_.Now() - begin, seconds(5));
}

TEST_F(LimitedClientTest, ATurnBeyondTheDeadlineFailsAtOnce) {
  const Deadline deadline(time_.Now() + std::chrono::milliseconds(700));
  absl::Status status;

  for (int i = 0; i < 6; ++i) status = client_.Get(kPods, kA, deadline).status();

  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LE(time_.Now(), deadline.when());
}

class GuardedClientTest : public ClientTest {
 protected:
  GuardedClientTest()
      : ClientTest({.may_write = [this]() -> absl::StatusOr<pushpull::SteadyTime> {
          if (may_write_) return time_.Now() + seconds(5);
          return absl::FailedPreconditionError("not the leader");
        }}) {}

  std::atomic<bool> may_write_ = true;
};

TEST_F(GuardedClientTest, WritesAreRefusedAndReadsAllowed) {
  ASSERT_TRUE(CreateA().ok());
  may_write_ = false;

  EXPECT_TRUE(client_.Get(kPods, kA, Soon()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CreateA().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(client_.Delete(kPods, kA, {}, Soon())));
  EXPECT_TRUE(absl::IsFailedPrecondition(client_.Apply(kPods, kA, "{}", Soon()).status()));
  EXPECT_EQ(server_.CountRequests("POST"), 1);
  EXPECT_EQ(server_.CountRequests("DELETE") + server_.CountRequests("PATCH"), 0);
}

TEST_F(GuardedClientTest, EachAttemptOfAWriteIsGuarded) {
  server_.InjectFaults([this](const FakeRequest&) {
    may_write_ = false;  // the lease is lost while the first try is under way
    return Fault{.kind = Fault::Kind::kAnswer, .code = 429, .retry_after_seconds = 1};
  });

  EXPECT_TRUE(absl::IsFailedPrecondition(CreateA().status()));
  EXPECT_EQ(server_.CountRequests("POST"), 1);
}

class TlsClientTest : public testing::Test {
 protected:
  absl::Status GetOverTls(const std::function<void(ClusterAccess&)>& change) {
    ClusterAccess access = server_.access();
    access.authorities.text = authority_.certificate;
    const FakeCertificate client = MakeCertificate("operator", authority_);
    access.certificate.text = client.certificate;
    access.private_key.text = client.private_key;
    change(access);
    const auto credentials = *Credentials::Create(access, time_);
    KubeClient client_over_tls(*credentials, time_, {});
    return client_over_tls.Get(kPods, kA, Deadline(time_.Now() + seconds(10))).status();
  }

  const FakeCertificate authority_ = MakeAuthority("authority");
  const FakeCertificate own_ = MakeCertificate("server", authority_);
  FakePausingTime time_;
  FakeApiServer server_{{.certificate = own_.certificate,
                         .private_key = own_.private_key,
                         .client_authorities = authority_.certificate}};
};

TEST_F(TlsClientTest, MutualTlsSucceeds) {
  server_.Put(kPods, kA, json::object());

  EXPECT_TRUE(GetOverTls([](ClusterAccess&) {}).ok());
}

TEST_F(TlsClientTest, TheTokenIsSent) {
  server_.Put(kPods, kA, json::object());

  EXPECT_TRUE(GetOverTls([](ClusterAccess& access) { access.token.text = "abc"; }).ok());
  EXPECT_EQ(server_.requests().back().token, "abc");
}

TEST_F(TlsClientTest, AnUntrustedServerIsRejected) {
  const absl::Status status =
      GetOverTls([](ClusterAccess& a) { a.authorities.text = MakeAuthority("other").certificate; });

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the server's certificate"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(TlsClientTest, AServerWithAnotherNameIsRejected) {
  const auto with_name = [](const char* name) {
    return [name](ClusterAccess& access) { access.server.tls_name = name; };
  };
  server_.Put(kPods, kA, json::object());

  EXPECT_TRUE(GetOverTls(with_name("pushpull.test")).ok());
  EXPECT_TRUE(absl::IsUnavailable(GetOverTls(with_name("other.test"))));
  EXPECT_TRUE(absl::IsUnavailable(GetOverTls(with_name("127.0.0.2"))));
}

TEST_F(TlsClientTest, AMissingClientCertificateIsUnavailable) {
  const absl::Status status = GetOverTls([](ClusterAccess& access) {
    access.certificate = {};
    access.private_key = {};
  });

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace pushpull_operator
