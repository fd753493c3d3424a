// SPDX-License-Identifier: Apache-2.0
//
// Plays the coordinators of a crowd of jobs, which are all of one name, each in a namespace of its
// own: whoever asks at any loopback address hears that the job runs with all of its members.
//
//   crowd_coordinator JOB SERVERS WORKERS     until its standard input ends
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include <grpcpp/grpcpp.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control_proto.h"
#include "runtime/membership/job_status.h"

namespace pushpull {
namespace {

class CrowdCoordinator final : public v1::Coordinator::Service {
 public:
  explicit CrowdCoordinator(const JobStatus& status) { ToProto(status, status_); }

  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::GetStatusRequest*,
                         v1::JobStatus* response) override {
    *response = status_;
    return grpc::Status::OK;
  }

 private:
  v1::JobStatus status_;
};

JobStatus RunningJob(std::string name, uint32_t servers, uint32_t workers) {
  JobStatus status{.job = std::move(name),
                   .phase = JobPhase::kRunning,
                   .desired_servers = servers,
                   .desired_workers = workers};
  status.epoch.counter = 1;
  status.step = Step(1);
  for (uint32_t i = 0; i < servers; ++i)
    status.servers.push_back({.server = ServerId(i), .is_alive = true});
  for (uint32_t i = 0; i < workers; ++i)
    status.workers.push_back({.worker = WorkerId(i), .is_alive = true, .is_member = true});
  return status;
}

int Run(std::string job, uint32_t servers, uint32_t workers) {
  CrowdCoordinator coordinator(RunningJob(std::move(job), servers, workers));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("0.0.0.0:7170", grpc::InsecureServerCredentials());
  builder.RegisterService(&coordinator);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "port 7170 is taken\n");
    return 3;
  }
  std::puts("ready");
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return 0;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  uint32_t servers = 0;
  uint32_t workers = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &servers) || !absl::SimpleAtoi(argv[3], &workers)) {
    std::fprintf(stderr, "usage: crowd_coordinator JOB SERVERS WORKERS\n");
    return 2;
  }
  return pushpull::Run(argv[1], servers, workers);
}
