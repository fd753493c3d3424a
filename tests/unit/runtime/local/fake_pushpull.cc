// SPDX-License-Identifier: Apache-2.0
//
// Stands in for `pushpull` in the launcher's tests: the real launcher over roles that do nothing
// but listen. What the coordinator says of the job is what a test, or the test's worker, puts into
// files of the folder FAKE_DIR.
//
//   fake_pushpull run MANIFEST WORKDIR REPORT
//   fake_pushpull coordinator|server ... --ready-fd N
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/signals.h"
#include "runtime/job/parse.h"
#include "runtime/local/launcher.h"
#include "runtime/membership/session_service.h"
#include "tests/unit/runtime/local/own_environment.h"

namespace pushpull {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string FakeFile(const std::string& name) {
  return absl::StrCat(OwnEnvironment().at("FAKE_DIR"), "/", name);
}

// What follows `flag` on the command line.
std::string ValueOf(const std::vector<std::string>& arguments, const std::string& flag) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == flag) return arguments[i + 1];
  }
  return "";
}

// Where the file `MEMBER.dies` is, the member is killed as it starts; not so the next one.
void DieIfTold(const std::string& member) {
  if (std::filesystem::remove(FakeFile(member + ".dies"))) raise(SIGKILL);
}

void ReportReady(const std::vector<std::string>& arguments, const std::string& line) {
  const int fd = std::stoi(ValueOf(arguments, "--ready-fd"));
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
}

// Says of the job what the files `failure`, `view`, `wanted`, a number of servers, and
// `wanted_workers` say. Of workers it knows the first alone. The file
// `late` has the number of answers in which the server's statistics are still of the step before
// the last. Workers have made a step where the file `stepped` is. Why a worker is left out goes to
// the file `left_out`.
class FakeCoordinator final : public SessionEvents {
 public:
  void OnMessage(SessionId /*session*/, FromMember /*message*/) override {}
  void OnClosed(SessionId /*session*/, const absl::Status& /*why*/) override {}

  absl::Status Resize(const JobSize& size) override {
    std::ofstream file(FakeFile("left_out"));
    for (const LeftOutWorker& it : size.left_out) file << ToString(it.worker) << " " << it.why;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> SaveCheckpoint() override { return 5; }
  absl::Status SetMode(const ModeChange&) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> StartTrace(const TraceRequest&) override { return 6; }
  absl::StatusOr<TraceParts> TakeTrace(uint64_t, uint64_t) override { return TraceParts(); }
  JobStatus GetStatus() override {
    JobStatus status;
    status.job = "fake";
    status.failure = ReadFile(FakeFile("failure"));
    status.phase = !status.failure.empty()                     ? JobPhase::kFailed
                   : std::filesystem::exists(FakeFile("view")) ? JobPhase::kRunning
                                                               : JobPhase::kStarting;
    // Until a server starts.
    if (std::filesystem::exists(FakeFile("recovering"))) status.phase = JobPhase::kRecovering;
    status.step = Step{12};
    if (!std::filesystem::exists(FakeFile("stepped")))
      status.checkpoint.restored_step = status.step;
    status.samples = 600;
    status.seconds = 2;
    status.losses = {{.step = Step{1}, .loss = 2.5, .samples = 50}};
    status.results = {{"accuracy", 0.875}, {"loss", 0.5}};
    const bool is_late = TakeLateAnswer();
    status.contributors_min = status.contributors_max = is_late ? 1 : 2;
    status.desired_servers = 1;
    if (std::filesystem::exists(FakeFile("wanted")))
      std::istringstream(ReadFile(FakeFile("wanted"))) >> status.desired_servers;
    status.desired_workers = 1;
    if (std::filesystem::exists(FakeFile("wanted_workers")))
      std::istringstream(ReadFile(FakeFile("wanted_workers"))) >> status.desired_workers;
    status.servers.resize(1);
    std::istringstream(ReadFile(FakeFile("server-0.pid"))) >> status.servers[0].pid;
    status.servers[0].is_alive = !std::filesystem::exists(FakeFile("server-0.lost"));
    status.servers[0].stats.chunks = 1;
    status.servers[0].stats.highest_version = Step{is_late ? 11U : 12U};
    status.workers.resize(1);
    std::istringstream(ReadFile(FakeFile("worker-0.pid"))) >> status.workers[0].pid;
    status.workers[0].metrics_address = "127.0.0.1:9";
    status.workers[0].is_alive = !std::filesystem::exists(FakeFile("worker-0.lost"));
    return status;
  }

 private:
  static bool TakeLateAnswer() {
    int answers = 0;
    std::istringstream(ReadFile(FakeFile("late"))) >> answers;
    if (answers > 0) std::ofstream(FakeFile("late")) << answers - 1;
    return answers > 0;
  }
};

int RunCoordinator(const std::vector<std::string>& arguments) {
  DieIfTold("coordinator");
  std::ofstream(FakeFile("coordinator.pid")) << getpid();
  std::ofstream(FakeFile("terms"), std::ios::app) << ValueOf(arguments, "--term") << "\n";
  EventLoop loop("fake");
  FakeCoordinator coordinator;
  const auto service = CoordinatorService::Listen(ValueOf(arguments, "--listen"), loop);
  if (!service.ok()) return 3;
  (*service)->Serve(coordinator);
  ReportReady(arguments, absl::StrCat("{\"control\":\"", (*service)->address(), "\"}\n"));
  pause();  // until a signal ends the process
  return 0;
}

int RunServer(const std::vector<std::string>& arguments) {
  const std::string index = ValueOf(arguments, "--index");
  DieIfTold("server-" + index);
  std::ofstream(FakeFile("server-" + index + ".pid")) << getpid();
  std::filesystem::remove(FakeFile("recovering"));
  if (std::filesystem::exists(FakeFile("server-" + index + ".refuses"))) return 3;
  // A pipe, if it is there: until somebody writes to it.
  std::ifstream(FakeFile("server-" + index + ".gate")).get();
  ReportReady(arguments, "{\"data\":\"127.0.0.1:7\",\"metrics\":\"127.0.0.1:8\"}\n");
  pause();
  return 0;
}

int RunJob(const std::vector<std::string>& arguments) {
  BlockStopSignals();
  const ParsedJob parsed = ParseTrainingJob(ReadFile(arguments.at(2)), {});
  for (const ManifestProblem& problem : parsed.problems)
    std::fprintf(stderr, "%s\n", ToString(problem).c_str());
  if (!parsed.problems.empty()) return 2;
  return LaunchJob({.manifest_path = arguments.at(2),
                    .overrides = {},
                    .workdir = arguments.at(3),
                    .report_path = arguments.at(4),
                    .shows_progress = true,
                    .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                    .environment = OwnEnvironment()},
                   parsed.job);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const std::string& command = arguments.at(1);
  if (command == "run") return pushpull::RunJob(arguments);
  if (command == "coordinator") return pushpull::RunCoordinator(arguments);
  if (command == "server") return pushpull::RunServer(arguments);
  return 2;
}
