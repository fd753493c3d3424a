// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a session over gRPC on the loopback interface.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/base/mutex.h"
#include "runtime/membership/session_client.h"
#include "runtime/membership/session_service.h"
#include "runtime/membership/status_client.h"
#include "tests/unit/runtime/membership/control_samples.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// A queue of what arrived, for a test to wait on. Thread-safe.
template <typename Item>
class Mailbox {
 public:
  void Put(Item item) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    items_.push_back(std::move(item));
    changed_.NotifyAll();
  }

  // The next item; fails the test and returns an empty one after 5 s.
  Item Take() ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(5));
    MutexLock lock(mu_);
    while (items_.empty()) {
      if (changed_.WaitUntil(mu_, deadline) || !items_.empty()) continue;
      ADD_FAILURE() << "nothing came within 5 s";
      return Item{};
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  bool is_empty() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return items_.empty();
  }

 private:
  CondVar changed_;
  mutable Mutex mu_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
};

class MemberEnd final : public SessionHandler {
 public:
  void OnMessage(ToMember message) override { messages.Put(std::move(message)); }
  void OnClosed(const absl::Status& why) override { closed.Put(why); }

  Mailbox<ToMember> messages;
  Mailbox<absl::Status> closed;
};

class CoordinatorEnd final : public SessionEvents {
 public:
  void OnMessage(SessionId session, FromMember message) override {
    messages.Put({session, std::move(message)});
  }
  void OnClosed(SessionId session, const absl::Status& why) override { closed.Put({session, why}); }
  absl::Status Resize(const JobSize&) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> SaveCheckpoint() override { return 5; }
  absl::Status SetMode(const ModeChange&) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> StartTrace(const TraceRequest&) override { return 6; }
  absl::StatusOr<TraceParts> TakeTrace(uint64_t, uint64_t) override { return TraceParts(); }
  JobStatus GetStatus() override { return SampleJobStatus(); }

  Mailbox<std::pair<SessionId, FromMember>> messages;
  Mailbox<std::pair<SessionId, absl::Status>> closed;
};

// Runs `task` on the loop and waits for it.
void RunOn(EventLoop& loop, const std::function<void()>& task) {
  Mailbox<bool> done;
  loop.Post([&] {
    task();
    done.Put(true);
  });
  done.Take();
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<CoordinatorService>> service =
        CoordinatorService::Listen("127.0.0.1:0", coordinator_loop_);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    service_->Serve(coordinator_);
  }

  void TearDown() override {
    Disconnect();
    if (service_ != nullptr) service_->Shutdown(Deadline::After(std::chrono::seconds(5)));
  }

  void Connect(const std::string& address, Duration timeout = std::chrono::seconds(5)) {
    RunOn(member_loop_, [&] {
      session_ = GrpcSessionConnector(address, nullptr, timeout).Connect(member_loop_, member_);
    });
  }
  void Disconnect() {
    RunOn(member_loop_, [&] { session_.reset(); });
  }
  void Send(FromMember message) {
    RunOn(member_loop_, [&] { session_->Send(std::move(message)); });
  }

  // Connects, sends one message and returns the coordinator's id of the session.
  SessionId Introduce() {
    Connect(service_->address());
    Send(TensorsInstalled{.table_version = 1});
    return coordinator_.messages.Take().first;
  }

  CoordinatorEnd coordinator_;
  MemberEnd member_;
  EventLoop coordinator_loop_{"coordinator"};
  EventLoop member_loop_{"member"};
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, EveryMessageArrivesInOrderAtBothEnds) {
  const SessionId id = Introduce();

  RunOn(member_loop_, [&] {
    for (FromMember& message : SampleFromMember()) session_->Send(std::move(message));
  });
  for (ToMember& message : SampleToMember()) service_->Send(id, std::move(message));

  for (const FromMember& sent : SampleFromMember())
    EXPECT_EQ(coordinator_.messages.Take().second.index(), sent.index());
  for (const ToMember& sent : SampleToMember())
    EXPECT_EQ(member_.messages.Take().index(), sent.index());
}

TEST_F(SessionTest, ThousandsOfMessagesKeepTheirOrder) {
  constexpr uint64_t kMessages = 3000;
  const SessionId id = Introduce();

  for (uint64_t i = 0; i < kMessages; ++i) {
    // The member's queue is bounded: wait for each hundred.
    Send(TensorsInstalled{.table_version = i});
    if (i % 100 != 99) continue;
    for (uint64_t k = i - 99; k <= i; ++k) {
      const auto [from, message] = coordinator_.messages.Take();
      ASSERT_EQ(from, id);
      ASSERT_EQ(std::get<TensorsInstalled>(message).table_version, k);
    }
  }
}

TEST_F(SessionTest, LargeTensorListIsDelivered) {
  const SessionId id = Introduce();
  InstallTensors message;
  message.tensors.push_back(PlacedTensor{.id = {}, .spec = {}, .first_chunk = {}, .shards = {}});
  message.tensors[0].spec.optimizer.kind = OptimizerKind::kSgd;
  message.tensors[0].shards.assign(size_t{3} << 20, ShardId{1023});

  service_->Send(id, message);

  const ToMember received = member_.messages.Take();
  ASSERT_TRUE(std::holds_alternative<InstallTensors>(received));
  EXPECT_EQ(std::get<InstallTensors>(received).tensors.at(0).shards, message.tensors[0].shards);
}

TEST_F(SessionTest, MemberCloseFlushesItsQueue) {
  const SessionId id = Introduce();

  RunOn(member_loop_, [&] {
    for (uint64_t i = 0; i < 100; ++i) session_->Send(TensorsInstalled{.table_version = i});
    session_.reset();
  });

  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(std::get<TensorsInstalled>(coordinator_.messages.Take().second).table_version, i);
  EXPECT_EQ(coordinator_.closed.Take().first, id);
}

TEST_F(SessionTest, CoordinatorCloseFlushesItsQueue) {
  const SessionId id = Introduce();

  service_->Send(id, Stop{.status = absl::FailedPreconditionError("another job")});
  service_->Close(id);

  EXPECT_EQ(std::get<Stop>(member_.messages.Take()).status.message(), "another job");
  EXPECT_EQ(member_.closed.Take().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(coordinator_.closed.Take().first, id);
}

TEST_F(SessionTest, ClosedMemberReceivesNothing) {
  const SessionId id = Introduce();

  Disconnect();
  service_->Send(id, Welcome{});
  coordinator_.closed.Take();
  service_->Send(id, Welcome{});

  RunOn(member_loop_, [] {});  // all earlier tasks have run
  EXPECT_TRUE(member_.messages.is_empty());
  EXPECT_TRUE(member_.closed.is_empty());
}

TEST_F(SessionTest, OnClosedNamesTheLostCoordinator) {
  Introduce();

  const std::string address = service_->address();
  service_.reset();

  const absl::Status why = member_.closed.Take();
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("coordinator at " + address));
}

TEST_F(SessionTest, UnreachableCoordinatorIsReportedAtOnce) {
  const std::string address = service_->address();
  service_.reset();

  Connect(address);

  const absl::Status why = member_.closed.Take();
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("coordinator at " + address));
}

// A listener that accepts connections and never answers, like a stopped process.
class SilentListener {
 public:
  SilentListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&where), length), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&where), &length), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(where.sin_port));
  }
  const std::string& address() const { return address_; }

 private:
  FileDescriptor socket_;
  std::string address_;
};

TEST_F(SessionTest, SilentCoordinatorTimesOut) {
  const SilentListener silent;

  Connect(silent.address(), std::chrono::milliseconds(100));

  const absl::Status why = member_.closed.Take();
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("coordinator at " + silent.address()));
}

TEST_F(SessionTest, MessagesSentBeforeServeAreDelivered) {
  absl::StatusOr<std::unique_ptr<CoordinatorService>> early =
      CoordinatorService::Listen("127.0.0.1:0", coordinator_loop_);
  ASSERT_TRUE(early.ok()) << early.status();
  Connect((*early)->address());
  Send(TensorsInstalled{.table_version = 5});

  (*early)->Serve(coordinator_);

  EXPECT_EQ(std::get<TensorsInstalled>(coordinator_.messages.Take().second).table_version, 5u);
}

TEST_F(SessionTest, PortInUseIsNamed) {
  const absl::StatusOr<std::unique_ptr<CoordinatorService>> second =
      CoordinatorService::Listen(service_->address(), coordinator_loop_);

  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(service_->address()));
}

TEST_F(SessionTest, GarbageOnThePortIsIgnored) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(ParseHostPort(service_->address())->port);
  for (int round = 0; round < 10; ++round) {
    const FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    std::string bytes = round % 2 == 0 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(i * 167 + round);
    [[maybe_unused]] const ssize_t sent =
        send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  Introduce();

  EXPECT_TRUE(coordinator_.closed.is_empty());
}

TEST_F(SessionTest, FetchStatusReturnsTheWholeStatus) {
  const absl::StatusOr<JobStatus> status =
      FetchStatus({service_->address()}, Deadline::After(std::chrono::seconds(5)));

  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->failure, SampleJobStatus().failure);
  EXPECT_EQ(status->workers.at(0).step, Step{16});
}

TEST_F(SessionTest, FetchStatusErrorNamesTheCoordinator) {
  const SilentListener silent;

  const absl::Status late =
      FetchStatus({silent.address()}, Deadline::After(std::chrono::milliseconds(50))).status();
  const std::string gone = service_->address();
  service_.reset();
  const absl::Status refused =
      FetchStatus({gone}, Deadline::After(std::chrono::seconds(5))).status();

  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr(silent.address()));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(gone));
}

TEST_F(SessionTest, UnknownModeIsRejected) {
  const absl::Status status = RequestMode({service_->address()},
                                          {.mode = static_cast<SyncMode>(9)},
                                          Deadline::After(std::chrono::seconds(5)));

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("mode: 9 is not known"));
}

TEST_F(SessionTest, StatusCallIsAnsweredAfterExecutorStops) {
  coordinator_loop_.Stop();

  const absl::Status status =
      FetchStatus({service_->address()}, Deadline::After(std::chrono::seconds(5))).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(SessionTest, NoEventAfterShutdown) {
  Introduce();

  service_->Shutdown(Deadline::After(std::chrono::seconds(5)));

  EXPECT_FALSE(member_.closed.Take().ok());
  RunOn(coordinator_loop_, [] {});
  EXPECT_TRUE(coordinator_.closed.is_empty());
}

}  // namespace
}  // namespace pushpull
