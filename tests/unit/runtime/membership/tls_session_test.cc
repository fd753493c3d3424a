// SPDX-License-Identifier: Apache-2.0
//
// Sessions and calls over TLS: who gets in, and certificates that change.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/membership/session_client.h"
#include "runtime/membership/session_service.h"
#include "runtime/membership/status_client.h"
#include "tests/fakes/fake_tls_folder.h"
#include "tests/unit/runtime/membership/control_samples.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience{10};

// Counts what comes, for a test to wait for. Thread-safe.
class Counter {
 public:
  void Add() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  int count() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return count_;
  }
  bool WaitFor(int count) ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(kPatience);
    MutexLock lock(mu_);
    while (count_ < count) {
      if (!changed_.WaitUntil(mu_, deadline)) return count_ >= count;
    }
    return true;
  }

 private:
  CondVar changed_;
  Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

class TlsCoordinatorEnd final : public SessionEvents {
 public:
  void OnMessage(SessionId, FromMember) override { messages.Add(); }
  void OnClosed(SessionId, const absl::Status&) override {}
  absl::Status Resize(const JobSize&) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> SaveCheckpoint() override { return 5; }
  absl::Status SetMode(const ModeChange&) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> StartTrace(const TraceRequest&) override { return 6; }
  absl::StatusOr<TraceParts> TakeTrace(uint64_t, uint64_t) override { return TraceParts(); }
  JobStatus GetStatus() override { return SampleJobStatus(); }

  Counter messages;
};

class TlsMemberEnd final : public SessionHandler {
 public:
  void OnMessage(ToMember) override {}
  void OnClosed(const absl::Status& why) override {
    end = why;
    closed.Add();
  }

  absl::Status end;  // written before `closed`
  Counter closed;
};

class TlsSessionTest : public ::testing::Test {
 protected:
  TlsSessionTest() {
    absl::StatusOr<std::unique_ptr<CoordinatorService>> service =
        CoordinatorService::Listen("127.0.0.1:0", coordinator_loop_, own_.tls.get());
    EXPECT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    service_->Serve(coordinator_);
  }
  ~TlsSessionTest() override { service_->Shutdown(Deadline::After(kPatience)); }

  TlsFiles NewFiles() const { return MakeTlsFiles(authority_); }
  TlsFiles Named(const std::vector<std::string>& dns_names) const {
    return MakeNamedTlsFiles(authority_, dns_names);
  }
  // Of a call with these files by a program that checks nothing.
  grpc::StatusCode CodeOfStrangers(const TlsFiles& files) const {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kCertificateName);
    const auto stub = v1::Coordinator::NewStub(
        grpc::CreateCustomChannel(service_->address(),
                                  grpc::SslCredentials({.pem_root_certs = files.authorities,
                                                        .pem_private_key = files.private_key,
                                                        .pem_cert_chain = files.certificate}),
                                  arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::JobStatus status;
    return stub->GetStatus(&context, {}, &status).error_code();
  }
  absl::Status Ask(const TlsFolder* tls) const {
    const ControlTarget target{.address = service_->address(), .tls = CurrentIdentity(tls)};
    return FetchStatus(target, Deadline::After(kPatience)).status();
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  FakeTlsMember own_{NewFiles()};
  TlsCoordinatorEnd coordinator_;
  EventLoop coordinator_loop_{"coordinator"};
  std::unique_ptr<CoordinatorService> service_;
};

// One member's session from its begin to its end. Thread-confined to the test.
class SessionOf {
 public:
  SessionOf(const std::string& address, const TlsFolder* tls) {
    loop_.Post([this, address, tls] {
      session_ = GrpcSessionConnector(address, tls).Connect(loop_, handler_);
    });
  }
  ~SessionOf() {
    loop_.Post([this] { session_.reset(); });
    loop_.Stop();
  }
  SessionOf(const SessionOf&) = delete;
  SessionOf& operator=(const SessionOf&) = delete;

  void Say() { Send(TensorsInstalled{.table_version = 1}); }
  void Send(FromMember message) {
    loop_.Post([this, message = std::move(message)] { session_->Send(message); });
  }
  absl::Status End() {
    return handler_.closed.WaitFor(1) ? handler_.end : absl::DeadlineExceededError("it goes on");
  }

 private:
  TlsMemberEnd handler_;
  EventLoop loop_{"member"};
  std::unique_ptr<Session> session_;
};

TEST_F(TlsSessionTest, MemberOfTheJobIsAccepted) {
  const FakeTlsMember member(NewFiles());
  SessionOf session(service_->address(), member.tls.get());

  session.Say();

  EXPECT_TRUE(coordinator_.messages.WaitFor(1));
  const absl::Status answered = Ask(member.tls.get());
  EXPECT_TRUE(answered.ok()) << answered;
}

// ---- names and roles ----

constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;

TEST_F(TlsSessionTest, AWorkerRegistersAsItselfOnly) {
  const FakeTlsMember worker(Named({"pushpull", "worker-1.mnist.ml.pushpull"}));
  SessionOf itself(service_->address(), worker.tls.get());
  SessionOf another(service_->address(), worker.tls.get());
  SessionOf server(service_->address(), worker.tls.get());

  itself.Send(RegisterWorker{.worker = WorkerId{1}});
  another.Send(RegisterWorker{.worker = WorkerId{0}});
  server.Send(RegisterServer{.server = ServerId{1}});

  for (SessionOf* refused : {&another, &server}) {
    const absl::Status why = refused->End();
    EXPECT_EQ(why.code(), kDenied) << why;
    EXPECT_THAT(std::string(why.message()), HasSubstr("worker-1.mnist.ml.pushpull"));
  }
  EXPECT_TRUE(coordinator_.messages.WaitFor(1));
  EXPECT_EQ(coordinator_.messages.count(), 1);
}

TEST_F(TlsSessionTest, AServerRegistersAsItselfOnly) {
  const FakeTlsMember server(Named({"pushpull", "server-1.mnist.ml.pushpull"}));
  SessionOf itself(service_->address(), server.tls.get());
  SessionOf another(service_->address(), server.tls.get());

  itself.Send(RegisterServer{.server = ServerId{1}});
  another.Send(RegisterServer{.server = ServerId{0}});

  EXPECT_EQ(another.End().code(), kDenied);
  EXPECT_TRUE(coordinator_.messages.WaitFor(1));
}

TEST_F(TlsSessionTest, OnlyManagersChangeTheJob) {
  const std::vector<std::pair<std::string, bool>> managers = {
      {"coordinator.mnist.ml.pushpull", true},
      {"operator.mnist.ml.pushpull", true},
      {"mnist.ml.pushpull", true},
      {"pushpull", true},
      {"worker-0.mnist.ml.pushpull", false},
      {"server-0.mnist.ml.pushpull", false}};
  for (const auto& [name, may] : managers) {
    const FakeTlsMember member(Named({"pushpull", name}));
    const ControlTarget target{.address = service_->address(), .tls = member.tls->identity()};
    const Deadline deadline = Deadline::After(kPatience);
    const absl::StatusCode expected = may ? absl::StatusCode::kOk : kDenied;

    EXPECT_EQ(RequestResize(target, {.servers = 2}, deadline).code(), expected) << name;
    EXPECT_EQ(RequestMode(target, {.staleness = 2}, deadline).code(), expected) << name;
    EXPECT_EQ(RequestCheckpoint(target, deadline).status().code(), expected) << name;
    EXPECT_TRUE(FetchStatus(target, deadline).ok()) << name;
  }
}

TEST_F(TlsSessionTest, ARefusalSaysWhoWhatAndWhatToDo) {
  const FakeTlsMember worker(Named({"pushpull", "worker-0.mnist.ml.pushpull"}));
  const ControlTarget target{.address = service_->address(), .tls = worker.tls->identity()};

  const absl::Status why = RequestResize(target, {.servers = 2}, Deadline::After(kPatience));

  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("coordinator at " + target.address),
                    HasSubstr("worker-0.mnist.ml.pushpull"),
                    HasSubstr("resize the job"),
                    HasSubstr("TrainingJob")));
}

TEST_F(TlsSessionTest, MembersOfAnotherJobAreRefused) {
  own_.folder.Swap(Named({"pushpull", "coordinator.mnist.ml.pushpull"}));
  own_.tls->Reload();
  const FakeTlsMember neighbour(Named({"pushpull", "mnist.ml.pushpull"}));
  // It believes to be of this job, so that it does not refuse the coordinator itself.
  const FakeTlsMember stranger(
      Named({"pushpull", "mnist.ml.pushpull", "operator.other.ml.pushpull"}));
  const FakeTlsMember foreigner(Named({"pushpull", "other.ml.pushpull"}));

  EXPECT_TRUE(Ask(neighbour.tls.get()).ok());
  EXPECT_EQ(Ask(foreigner.tls.get()).code(), absl::StatusCode::kUnavailable);
  const ControlTarget target{.address = service_->address(), .tls = stranger.tls->identity()};
  EXPECT_EQ(RequestResize(target, {.servers = 2}, Deadline::After(kPatience)).code(), kDenied);
}

TEST_F(TlsSessionTest, AWorkerIsNotTakenForTheCoordinator) {
  own_.folder.Swap(Named({"pushpull", "worker-0.mnist.ml.pushpull"}));
  own_.tls->Reload();
  const FakeTlsMember member(Named({"pushpull", "worker-1.mnist.ml.pushpull"}));
  SessionOf session(service_->address(), member.tls.get());

  session.Say();

  EXPECT_EQ(session.End().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(member.tls.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(coordinator_.messages.count(), 0);
}

// Its own check would refuse to load such a certificate.
TEST_F(TlsSessionTest, ACertificateWithoutOurNamesIsRefused) {
  const TlsFiles files = Named({"web.example"});

  const absl::Status loaded = TlsIdentity::Create(files).status();

  EXPECT_EQ(loaded.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfStrangers(files), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(TlsSessionTest, AcceptedConnectionLogsNothing) {
  const FakeTlsMember member(NewFiles());

  testing::internal::CaptureStderr();
  const absl::Status answered = Ask(member.tls.get());

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(answered.ok()) << answered;
}

TEST_F(TlsSessionTest, RejectedConnectionsAreLoggedRarely) {
  TlsFiles files = MakeTlsFiles();
  files.authorities += authority_.certificate;
  const FakeTlsMember stranger(files);

  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Ask(stranger.tls.get()).ok());

  // One in ten seconds, also of those before this test.
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST_F(TlsSessionTest, MemberOfAnotherJobIsRejectedWithAdvice) {
  const FakeTlsMember stranger(MakeTlsFiles());
  SessionOf session(service_->address(), stranger.tls.get());

  const absl::Status why = session.End();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("coordinator at " + service_->address()),
                    HasSubstr("certificate"),
                    HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_EQ(Ask(stranger.tls.get()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsSessionTest, UntrustedMemberCertificateIsRejected) {
  TlsFiles files = MakeTlsFiles();
  files.authorities += authority_.certificate;
  const FakeTlsMember stranger(files);
  SessionOf session(service_->address(), stranger.tls.get());

  const absl::Status why = session.End();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("PUSHPULL_TLS_DIR"));
  EXPECT_EQ(Ask(stranger.tls.get()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsSessionTest, MemberWithoutTlsIsRejectedWithAdvice) {
  SessionOf session(service_->address(), nullptr);

  const absl::Status why = session.End();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(
      std::string(why.message()),
      AllOf(HasSubstr("coordinator at " + service_->address()), HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_EQ(Ask(nullptr).code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsSessionTest, UnreachableCoordinatorIsNotBlamedOnTls) {
  const ControlTarget nobody{.address = service_->address()};
  service_->Shutdown(Deadline::After(kPatience));

  const absl::Status why = FetchStatus(nobody, Deadline::After(kPatience)).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("coordinator at " + nobody.address + ": cannot be reached"),
                    Not(HasSubstr("TLS"))));
}

TEST_F(TlsSessionTest, CoordinatorOfAnotherJobIsNotTrusted) {
  TlsFiles files = NewFiles();
  files.authorities = authority_.certificate;
  const FakeTlsMember member(files);
  const FakeCertificate other = MakeAuthority("job-2");
  TlsFiles impostor = MakeTlsFiles(other);
  impostor.authorities += authority_.certificate;  // takes everybody in
  own_.folder.Swap(impostor);
  own_.tls->Reload();

  const absl::Status why = Ask(member.tls.get());

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
}

TEST_F(TlsSessionTest, RotationKeepsOpenSessions) {
  const FakeTlsMember early(NewFiles());
  SessionOf session(service_->address(), early.tls.get());
  session.Say();
  ASSERT_TRUE(coordinator_.messages.WaitFor(1));
  const FakeCertificate next_authority = MakeAuthority("job-1, later");
  const FakeTlsMember late(MakeTlsFiles(next_authority));
  EXPECT_FALSE(Ask(late.tls.get()).ok());

  own_.folder.Swap(MakeTlsFiles(next_authority));
  own_.tls->Reload();

  const absl::Status answered = Ask(late.tls.get());
  EXPECT_TRUE(answered.ok()) << answered;
  EXPECT_FALSE(Ask(early.tls.get()).ok());
  session.Say();
  EXPECT_TRUE(coordinator_.messages.WaitFor(2));
}

TEST_F(TlsSessionTest, InvalidRotationKeepsOldCertificates) {
  const FakeTlsMember member(NewFiles());
  TlsFiles broken = NewFiles();
  broken.private_key = NewFiles().private_key;

  own_.folder.Swap(broken);
  own_.tls->Reload();

  const absl::Status answered = Ask(member.tls.get());
  EXPECT_TRUE(answered.ok()) << answered;
}

}  // namespace
}  // namespace pushpull
