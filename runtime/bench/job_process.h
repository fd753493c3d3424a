// SPDX-License-Identifier: Apache-2.0
//
// The job of a benchmark: `pushpull run` as a child process, in a temporary folder of its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/local/process.h"
#include "runtime/local/workdir.h"

namespace pushpull {

// A folder in TMPDIR, or /tmp; the destructor removes it with its contents. Movable.
class BenchFolder {
 public:
  static absl::StatusOr<BenchFolder> Make(const std::map<std::string, std::string>& environment);
  ~BenchFolder();
  BenchFolder(BenchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  BenchFolder& operator=(BenchFolder&&) = delete;
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit BenchFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Called from one thread; Stop from any.
class JobProcess {
 public:
  // Blocks until the launcher has begun. `folder` outlives it.
  static absl::StatusOr<std::unique_ptr<JobProcess>> Start(
      const BenchFolder& folder,
      const std::string& program,
      const std::string& manifest,
      const std::map<std::string, std::string>& environment);
  // Ends the job if it is still running, and waits for its end.
  ~JobProcess();
  JobProcess(const JobProcess&) = delete;
  JobProcess& operator=(const JobProcess&) = delete;

  // All processes of the job except its launcher. Valid once they run.
  absl::StatusOr<std::vector<Endpoint>> Members() const { return ReadEndpoints(workdir_); }

  // Blocks until the launcher has ended. kInternal: the job failed; the text has its last output.
  absl::Status WaitForEnd(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the job. Returns what went wrong in it, or `otherwise` if it reported nothing.
  absl::Status Explain(const absl::Status& otherwise) ABSL_LOCKS_EXCLUDED(mu_);

  // Asks the job to end. Never blocks.
  void Stop();

 private:
  explicit JobProcess(std::string workdir) : workdir_(std::move(workdir)), loop_("pp-bench") {}
  absl::Status StartOnLoop(const ProcessSpec& spec) ABSL_LOCKS_EXCLUDED(mu_);
  std::string LastWords() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string workdir_;
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mu_);
  std::optional<ProcessEnd> end_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> output_ ABSL_GUARDED_BY(mu_);  // the last lines
  std::unique_ptr<ChildProcess> process_;                 // confined to the loop
  EventLoop loop_;
};

}  // namespace pushpull
