// SPDX-License-Identifier: Apache-2.0
//
// Against a gRPC server that takes down what it is asked for.
#include "operator/controller/grpc_job_coordinator.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/mutex.h"
#include "tests/fakes/fake_tls_folder.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;
using pushpull::SyncMode;
using std::chrono::seconds;

class Recorder final : public pushpull::v1::Coordinator::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*,
                         const pushpull::v1::GetStatusRequest*,
                         pushpull::v1::JobStatus* response) override {
    const pushpull::MutexLock lock(mu);
    *response = status;
    return grpc::Status::OK;
  }
  grpc::Status Resize(grpc::ServerContext*,
                      const pushpull::v1::ResizeRequest* request,
                      pushpull::v1::Status*) override {
    const pushpull::MutexLock lock(mu);
    resize = *request;
    return grpc::Status::OK;
  }
  grpc::Status SetMode(grpc::ServerContext*,
                       const pushpull::v1::SetModeRequest* request,
                       pushpull::v1::Status* response) override {
    const pushpull::MutexLock lock(mu);
    mode = *request;
    response->set_code(static_cast<uint32_t>(refusal.code()));
    response->set_text(std::string(refusal.message()));
    return grpc::Status::OK;
  }
  grpc::Status SaveCheckpoint(grpc::ServerContext*,
                              const pushpull::v1::SaveCheckpointRequest*,
                              pushpull::v1::SaveCheckpointResponse* response) override {
    response->set_number(7);
    return grpc::Status::OK;
  }

  pushpull::Mutex mu;
  pushpull::v1::JobStatus status ABSL_GUARDED_BY(mu);
  pushpull::v1::ResizeRequest resize ABSL_GUARDED_BY(mu);
  pushpull::v1::SetModeRequest mode ABSL_GUARDED_BY(mu);
  absl::Status refusal ABSL_GUARDED_BY(mu);
};

class GrpcJobCoordinatorTest : public testing::Test {
 protected:
  GrpcJobCoordinatorTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&recorder_);
    server_ = builder.BuildAndStart();
    place_ = {.address = absl::StrCat("127.0.0.1:", port)};
  }

  static Deadline Soon() { return Deadline::After(seconds(30)); }

  Recorder recorder_;
  std::unique_ptr<grpc::Server> server_;
  CoordinatorEndpoint place_;
  GrpcJobCoordinator coordinator_;
};

// A tenant chooses the coordinator's image.
TEST_F(GrpcJobCoordinatorTest, AnAnswerThatIsTooLongIsRefused) {
  {
    const pushpull::MutexLock lock(recorder_.mu);
    recorder_.status.set_failure(std::string(8 << 20, 'x'));
  }

  const absl::Status why = coordinator_.GetStatus(place_, Soon()).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_THAT(std::string(why.message()), testing::HasSubstr(place_.address));
}

TEST_F(GrpcJobCoordinatorTest, TextsOfACoordinatorAreEscapedAndShort) {
  {
    const pushpull::MutexLock lock(recorder_.mu);
    recorder_.status.set_phase(2);
    recorder_.status.set_failure("a\n\x1b[2J" + std::string(5000, 'x'));
    recorder_.refusal = absl::InvalidArgumentError("\x1b[2J" + std::string(5000, 'x'));
  }

  const absl::StatusOr<CoordinatorReport> report = coordinator_.GetStatus(place_, Soon());
  const absl::Status refused = coordinator_.SetSync(place_, {}, Soon());

  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->failure, testing::StartsWith("a\\n\\x1b[2Jxxx"));
  EXPECT_LE(report->failure.size(), 4096U);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("\\x1b[2Jxxx"));
  EXPECT_LE(refused.message().size(), 4200U);
}

TEST_F(GrpcJobCoordinatorTest, TheReportIsTheCoordinatorsStatus) {
  pushpull::v1::JobStatus status;
  status.set_job("mnist");
  status.set_phase(2);  // running
  status.set_desired_servers(3);
  status.set_desired_workers(2);
  status.set_batch(128);
  status.set_global_batch(512);
  status.set_shards_moving(5);
  status.set_step(40);
  status.set_samples(600);
  status.set_seconds(20);
  pushpull::v1::JobStatus::Server* server = status.add_servers();
  server->set_server(1);
  server->set_is_alive(true);
  pushpull::v1::JobStatus::Worker* worker = status.add_workers();
  worker->set_worker(0);
  worker->set_has_left(true);
  status.mutable_consistency()->set_mode(static_cast<uint32_t>(pushpull::SyncMode::kBounded));
  status.mutable_consistency()->set_staleness(4);
  status.set_term(6);
  pushpull::v1::JobStatus::StateLoss* loss = status.add_state_losses();
  loss->add_shards(9);
  loss->set_chunks(2);
  loss->set_is_repaired(true);
  loss->set_from_workers(2);
  loss->set_lowest_version(40);
  loss->set_highest_version(40);
  loss->set_has_optimizer_state(true);
  loss->set_state_step(30);

  {
    const pushpull::MutexLock lock(recorder_.mu);
    recorder_.status = status;
  }

  const absl::StatusOr<CoordinatorReport> report = coordinator_.GetStatus(place_, Soon());

  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->job, "mnist");
  EXPECT_EQ(report->phase, pushpull::JobPhase::kRunning);
  EXPECT_EQ(report->desired_servers, 3);
  EXPECT_EQ(report->desired_workers, 2);
  EXPECT_EQ(report->global_batch, 512);
  EXPECT_TRUE(report->divides_samples);
  EXPECT_EQ(report->shards_moving, 5);
  EXPECT_EQ(report->step, 40);
  EXPECT_EQ(report->term, 6);
  ASSERT_EQ(report->losses.size(), 1U);
  EXPECT_TRUE(report->losses[0].is_repaired);
  EXPECT_FALSE(report->losses[0].is_undone);
  EXPECT_THAT(report->losses[0].text, testing::HasSubstr("step 30, 10 steps of it lost"));
  EXPECT_EQ(report->samples_per_second, 30);
  EXPECT_EQ(report->servers, std::set<int>{1});
  EXPECT_TRUE(report->workers.at(0).has_left);
  EXPECT_FALSE(report->workers.at(0).is_alive);
  EXPECT_EQ(report->sync, (SyncSettings{.mode = SyncMode::kBounded, .staleness = 4}));
}

TEST_F(GrpcJobCoordinatorTest, WhatIsNotAskedForStays) {
  ASSERT_TRUE(coordinator_.Resize(place_, {.workers = 4, .global_batch = 512}, Soon()).ok());

  const pushpull::MutexLock lock(recorder_.mu);
  EXPECT_FALSE(recorder_.resize.has_servers());
  EXPECT_EQ(recorder_.resize.workers(), 4);
  EXPECT_EQ(recorder_.resize.global_batch(), 512);
}

TEST_F(GrpcJobCoordinatorTest, AModeIsAskedForWithAllThatBelongsToIt) {
  const RequestSync ask{.sync = {.mode = SyncMode::kBounded, .staleness = 2}};

  ASSERT_TRUE(coordinator_.SetSync(place_, ask, Soon()).ok());

  const pushpull::MutexLock lock(recorder_.mu);
  EXPECT_EQ(recorder_.mode.mode(), static_cast<uint32_t>(pushpull::SyncMode::kBounded));
  EXPECT_EQ(recorder_.mode.staleness(), 2);
  EXPECT_TRUE(recorder_.mode.has_backup_workers());
  EXPECT_EQ(recorder_.mode.backup_workers(), 0);
}

TEST_F(GrpcJobCoordinatorTest, ARefusalIsTheCoordinators) {
  {
    const pushpull::MutexLock lock(recorder_.mu);
    recorder_.refusal = absl::FailedPreconditionError("the job has ended");
  }

  const absl::Status refused = coordinator_.SetSync(place_, {}, Soon());

  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find(place_.address), std::string::npos) << refused;
}

TEST_F(GrpcJobCoordinatorTest, ASaveHasANumber) {
  EXPECT_EQ(*coordinator_.Save(place_, Soon()), 7);
}

TEST_F(GrpcJobCoordinatorTest, AMissingCoordinatorIsReportedAtOnce) {
  server_->Shutdown();

  EXPECT_TRUE(absl::IsUnavailable(coordinator_.GetStatus(place_, Soon()).status()));
}

// Like a coordinator of a job with these certificates.
class TlsCoordinator {
 public:
  explicit TlsCoordinator(const pushpull::TlsFiles& files) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = files.authorities;
    options.pem_key_cert_pairs.push_back(
        {.private_key = files.private_key, .cert_chain = files.certificate});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterService(&recorder_);
    server_ = builder.BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
  }
  std::string address;

 private:
  Recorder recorder_;
  std::unique_ptr<grpc::Server> server_;
};

std::shared_ptr<const pushpull::TlsFiles> Shared(const pushpull::TlsFiles& files) {
  return std::make_shared<const pushpull::TlsFiles>(files);
}

TEST(GrpcJobCoordinatorTlsTest, OnlyAMemberOfTheJobIsAnswered) {
  const pushpull::FakeCertificate authority = pushpull::MakeAuthority("job-1");
  const auto member = [&](const char* name) {
    return pushpull::MakeTlsFiles(authority, pushpull::MakeCertificate(name, authority));
  };
  const TlsCoordinator job(member("coordinator"));
  GrpcJobCoordinator coordinator;
  const auto save = [&](std::shared_ptr<const pushpull::TlsFiles> files) {
    return coordinator
        .Save({.address = job.address, .tls = std::move(files)}, Deadline::After(seconds(30)))
        .status();
  };

  EXPECT_TRUE(save(Shared(member("operator"))).ok());
  EXPECT_TRUE(absl::IsUnavailable(save(Shared(pushpull::MakeTlsFiles()))));
  EXPECT_TRUE(absl::IsUnavailable(save(nullptr)));
}

TEST(GrpcJobCoordinatorTlsTest, DamagedCertificatesAreReportedAndNotShown) {
  GrpcJobCoordinator coordinator;
  pushpull::TlsFiles damaged = pushpull::MakeTlsFiles();
  damaged.private_key = "secret";

  const absl::Status status = coordinator.Resize({.address = "127.0.0.1:1", .tls = Shared(damaged)},
                                                 {.workers = 1},
                                                 Deadline::After(seconds(30)));

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("tls.key"), std::string::npos) << status;
  EXPECT_EQ(status.message().find("secret"), std::string::npos) << status;
}

// Takes connections and never says a word.
class SilentListener {
 public:
  SilentListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof any;
    auto* generic = reinterpret_cast<sockaddr*>(&any);
    EXPECT_EQ(bind(socket_.get(), generic, bytes), 0);
    EXPECT_EQ(listen(socket_.get(), 4), 0);
    EXPECT_EQ(getsockname(socket_.get(), generic, &bytes), 0);
    address = absl::StrCat("127.0.0.1:", ntohs(any.sin_port));
  }
  std::string address;

 private:
  pushpull::FileDescriptor socket_;
};

TEST_F(GrpcJobCoordinatorTest, ASilentOneCostsTheDeadline) {
  SilentListener silent;

  const auto report = coordinator_.GetStatus({.address = silent.address},
                                             Deadline::After(std::chrono::milliseconds(50)));

  EXPECT_TRUE(absl::IsDeadlineExceeded(report.status())) << report.status();
}

}  // namespace
}  // namespace pushpull_operator
