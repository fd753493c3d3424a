// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/job_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr Duration kStartTimeout = std::chrono::seconds(30);
// A launcher that receives SIGTERM gives its job 10 s.
constexpr Duration kEndTimeout = std::chrono::seconds(30);
constexpr size_t kLinesKept = 5;

}  // namespace

absl::StatusOr<BenchFolder> BenchFolder::Make(
    const std::map<std::string, std::string>& environment) {
  const std::string parent = VariableOf(environment, "TMPDIR");
  std::string path = absl::StrCat(parent.empty() ? "/tmp" : parent, "/pushpull-bench-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return StatusFromErrno(errno, absl::StrCat("folder ", path));
  return BenchFolder(std::move(path));
}

BenchFolder::~BenchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<JobProcess>> JobProcess::Start(
    const BenchFolder& folder,
    const std::string& program,
    const std::string& manifest,
    const std::map<std::string, std::string>& environment) {
  const std::string file = folder.path() + "/job.yaml";
  const std::string workdir = folder.path() + "/job";
  PUSHPULL_RETURN_IF_ERROR(WriteFileAtomically(file, manifest));
  const ProcessSpec spec{
      .name = "the benchmark's job",
      .command = {program, "run", file, "--workdir", workdir, "--progress", "none"},
      .environment = environment};
  std::unique_ptr<JobProcess> job(new JobProcess(workdir));
  PUSHPULL_RETURN_IF_ERROR(job->StartOnLoop(spec));
  return job;
}

absl::Status JobProcess::StartOnLoop(const ProcessSpec& spec) {
  loop_.Post([this, spec] {
    const auto on_output = [this](const std::string& line) {
      MutexLock lock(mu_);
      output_.push_back(line);
      if (output_.size() > kLinesKept) output_.erase(output_.begin());
    };
    const auto on_end = [this](const ProcessEnd& end) {
      MutexLock lock(mu_);
      end_ = end;
      changed_.NotifyAll();
    };
    absl::StatusOr<std::unique_ptr<ChildProcess>> process =
        ChildProcess::Start(spec, loop_, {{}, on_output, {}, on_end});
    MutexLock lock(mu_);
    started_ = process.status();
    if (process.ok()) process_ = *std::move(process);
    changed_.NotifyAll();
  });
  const Deadline deadline = Deadline::After(kStartTimeout);
  MutexLock lock(mu_);
  while (!started_) {
    if (!changed_.WaitUntil(mu_, deadline) && !started_)
      return absl::DeadlineExceededError("the benchmark's job does not start");
  }
  return *started_;
}

JobProcess::~JobProcess() {
  Stop();
  // What is still running after that is killed with the launcher, by its guardian.
  [[maybe_unused]] const absl::Status ended = WaitForEnd(Deadline::After(kEndTimeout));
  loop_.Post([this] { process_.reset(); });
  loop_.Stop();
}

void JobProcess::Stop() {
  loop_.Post([this] {
    if (process_ != nullptr) process_->Signal(SIGTERM);
  });
}

absl::Status JobProcess::WaitForEnd(Deadline deadline) {
  MutexLock lock(mu_);
  while (started_ && started_->ok() && !end_) {
    if (!changed_.WaitUntil(mu_, deadline) && !end_)
      return absl::DeadlineExceededError("the benchmark's job does not end");
  }
  if (!end_ || (end_->exit_code == 0 && end_->signal == 0)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the benchmark's job ", ToString(*end_), ": ", LastWords()));
}

absl::Status JobProcess::Explain(const absl::Status& otherwise) {
  Stop();
  const absl::Status ended = WaitForEnd(Deadline::After(kEndTimeout));
  return ended.ok() ? otherwise : ended;
}

std::string JobProcess::LastWords() const {
  return output_.empty() ? "it said nothing" : absl::StrJoin(output_, " | ");
}

}  // namespace pushpull
