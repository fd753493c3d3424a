// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/member_table.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"
#include "runtime/local/status_rules.h"

namespace pushpull {
namespace {

// How long a member that the coordinator has lost may take to end by itself.
constexpr Duration kLostGrace = std::chrono::seconds(3);

const char* RoleName(JobRole role) {
  switch (role) {
    case JobRole::kCoordinator:
      return "coordinator";
    case JobRole::kServer:
      return "server";
    case JobRole::kWorker:
      return "worker";
  }
  return "member";
}

// A worker that ended in order because it was not desired at that moment, as its own program or the
// coordinator says; the coordinator that released it may be gone. A released server is removed when
// it ends.
bool IsReleased(const MemberProcess& member, const JobStatus& status) {
  return member.role() == JobRole::kWorker && member.is_done() && !member.is_running() &&
         (member.was_released() || WasReleased(status, member.endpoint().index));
}

}  // namespace

std::string MemberName(JobRole role, int index) {
  return role == JobRole::kCoordinator ? RoleName(role) : absl::StrCat(RoleName(role), "-", index);
}

// ---- one member ----

MemberProcess::MemberProcess(JobRole role,
                             int index,
                             const LocalJob& job,
                             const MemberEvents& events)
    : role_(role),
      job_(job),
      events_(events),
      endpoint_{.role = RoleName(role), .index = static_cast<uint32_t>(index)} {}

absl::Status MemberProcess::Start(const ProcessSpec& spec) {
  if (!log_.is_open()) log_.open(job_.workdir.log_path(name()), std::ios::trunc);
  Reset();
  is_listed_ = false;
  lost_since_.reset();
  told_end_.reset();
  error_line_ = {};
  unlink(job_.workdir.termination_path(name()).c_str());  // left by an earlier start
  started_at_ = job_.loop.Now();
  PUSHPULL_ASSIGN_OR_RETURN(
      process_,
      ChildProcess::Start(spec,
                          job_.loop,
                          {.on_forked = [this](pid_t group) { job_.guardian.Watch(group); },
                           .on_output =
                               [this](const std::string& line) {
                                 log_ << line << '\n' << std::flush;
                                 error_line_.Add(line);
                                 events_.on_output(*this, line);
                               },
                           .on_ready = [this](const std::string& line) { OnReady(line); },
                           .on_end = [this](const ProcessEnd& end) { OnEnd(end); }}));
  endpoint_ = {.role = endpoint_.role, .index = endpoint_.index, .pid = process_->pid()};
  return absl::OkStatus();
}

void MemberProcess::OnReady(const std::string& line) {
  const nlohmann::json addresses = nlohmann::json::parse(line, nullptr, false);
  if (!addresses.is_object()) return;
  const auto text_at = [&addresses](const char* key) {
    const auto it = addresses.find(key);
    return it != addresses.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  has_been_ready_ = true;
  endpoint_.control = text_at("control");
  endpoint_.data = text_at("data");
  endpoint_.metrics = text_at("metrics");
  if (role_ == JobRole::kCoordinator && !endpoint_.metrics.empty())
    endpoint_.page = absl::StrCat("http://", endpoint_.metrics, "/");
  events_.on_ready(*this);
}

void MemberProcess::OnEnd(const ProcessEnd& end) {
  job_.guardian.Forget(process_->pid());
  const absl::StatusOr<std::string> message = ReadTextFile(job_.workdir.termination_path(name()));
  if (message.ok()) told_end_ = ToldEndOf(*message);
  // A signal ends a program whatever it has printed.
  const bool has_failed = end.signal == 0 && end.exit_code != 0;
  const bool has_reason = told_end_ && !told_end_->was_released();
  last_words_ = has_reason ? told_end_->reason : has_failed ? error_line_.text() : "";
  // This runs in a callback of the process, so the process is deleted after the callback returns.
  job_.loop.Post([ended = std::shared_ptr<ChildProcess>(std::move(process_))] {});
  events_.on_end(*this, end);  // last: it may restart the member or delete it
}

// Since its last start: a server is ready, a worker has made a step or, where no worker has,
// joined. The status is not quite current, but training does not begin before all of the first
// servers are ready; and a later server that listens and is killed may have registered since,
// whereas one that finds no coordinator ends by itself.
bool MemberProcess::HasJoined(const ProcessEnd& end,
                              const JobStatus& status,
                              SteadyTime training_began) const {
  if (role_ == JobRole::kWorker) {
    return status.has_stepped() ? HasSteppedWithin(status, endpoint_.index, SinceStart())
                                : HasJoinedWithin(status, endpoint_.index, SinceStart());
  }
  const bool may_have_registered = has_been_ready_ && end.signal != 0;
  return is_listed_ || started_at_ < training_began || may_have_registered;
}

MemberExit MemberProcess::ExitOf(const ProcessEnd& end,
                                 const JobStatus& status,
                                 SteadyTime training_began) const {
  const bool is_pending = role_ != JobRole::kCoordinator &&
                          !HasJoined(end, status, training_began) &&
                          IsTrainingWithout(status, role_, endpoint_.index);
  return {.role = role_,
          .index = index(),
          .exit_code = end.exit_code,
          .signal = end.signal,
          .ran_for = std::chrono::duration_cast<std::chrono::seconds>(SinceStart()),
          .is_final = told_end_ && told_end_->is_final(),
          .restarts_job = told_end_ && told_end_->restarts_job(),
          .is_pending = is_pending,
          .precedes_training = !status.has_stepped(),
          .line = last_words()};
}

bool MemberProcess::IsAbout(const WorkerStatus& worker) const {
  const auto pid = static_cast<pid_t>(worker.pid);
  return worker.worker.value() == endpoint_.index && pid > 0 && getpgid(pid) == process_->pid();
}

// The coordinator that knew this process is gone, and with it what it would have noticed. A worker
// that runs comes to the next one while that collects what is known, or soon after.
void MemberProcess::FollowUnknownWorker(const JobStatus& status) {
  const bool has_left = absl::c_any_of(status.workers, [this](const WorkerStatus& it) {
    return it.worker.value() == endpoint_.index && (it.has_left || it.was_released);
  });
  const bool is_expected = is_listed_ && !has_left && status.phase != JobPhase::kRecovering;
  KillIfItStays(is_expected, job_.job.spec.restart.peer_timeout);
}

bool MemberProcess::FollowWorker(const WorkerStatus& worker) {
  const auto pid = static_cast<pid_t>(worker.pid);
  is_listed_ = worker.is_alive && !worker.has_left && !worker.was_released;
  const bool has_changed = endpoint_.pid != pid || endpoint_.metrics != worker.metrics_address;
  endpoint_.pid = pid;
  endpoint_.metrics = worker.metrics_address;
  KillIfItStays(!worker.is_alive && !worker.has_left && !worker.was_released, kLostGrace);
  return has_changed;
}

// A released server ends by itself; one that the coordinator has lost may not notice.
void MemberProcess::FollowServer(const JobStatus& status) {
  const bool is_listed = IsListed(status, endpoint_);
  is_listed_ = is_listed_ || is_listed;
  KillIfItStays(is_listed_ && !is_listed && !IsAwaited(status, endpoint_.index), kLostGrace);
}

// The exit code decides what follows, so a process that is about to end gets the time to do so.
void MemberProcess::KillIfItStays(bool is_lost, Duration grace) {
  if (!is_lost) return lost_since_.reset();
  if (!lost_since_) lost_since_ = job_.loop.Now();
  if (job_.loop.Now() - *lost_since_ >= grace) KillGroup();
}

void MemberProcess::RequestEnd(bool is_urgent) const {
  is_urgent ? process_->EndNow() : process_->Signal(SIGTERM);
  process_->Signal(SIGCONT);
}

// ---- all members ----

MemberProcess& MemberTable::Add(JobRole role, int index) {
  return members_.try_emplace(MemberName(role, index), role, index, job_, events_).first->second;
}

absl::Status MemberTable::Start(MemberProcess& member, const ProcessSpec& spec) {
  PUSHPULL_RETURN_IF_ERROR(member.Start(spec));
  PublishEndpoints();
  return absl::OkStatus();
}

MemberProcess* MemberTable::Find(const std::string& name) {
  const auto it = members_.find(name);
  return it == members_.end() ? nullptr : &it->second;
}

bool MemberTable::AreServersReady() const {
  return absl::c_all_of(members_, [](const auto& entry) {
    return entry.second.role() != JobRole::kServer || entry.second.has_been_ready();
  });
}

bool MemberTable::AreWorkersDone() const {
  return absl::c_all_of(members_, [](const auto& entry) {
    return entry.second.role() != JobRole::kWorker || entry.second.is_done();
  });
}

std::vector<int> MemberTable::Missing(JobRole role, const JobStatus& status) const {
  const uint32_t desired = DesiredCount(status, role);
  std::vector<int> missing;
  for (int i = 0; static_cast<uint32_t>(i) < desired; ++i) {
    const auto it = members_.find(MemberName(role, i));
    if (it == members_.end() || IsReleased(it->second, status)) missing.push_back(i);
  }
  return missing;
}

std::vector<WorkerId> MemberTable::DoneWorkers(const JobStatus& status) const {
  std::vector<WorkerId> done;
  for (const auto& [name, member] : members_) {
    const bool has_ended =
        member.role() == JobRole::kWorker && member.is_done() && !member.is_running();
    const uint32_t index = member.endpoint().index;
    if (has_ended && !IsReleased(member, status) && index < status.desired_workers)
      done.push_back(WorkerId{index});
  }
  return done;
}

void MemberTable::Follow(const JobStatus& status) {
  bool has_changed = false;
  for (auto& [name, member] : members_) {
    if (!member.is_running()) continue;
    if (member.role() == JobRole::kServer) member.FollowServer(status);
    if (member.role() != JobRole::kWorker) continue;
    const auto worker = absl::c_find_if(
        status.workers, [&m = member](const WorkerStatus& it) { return m.IsAbout(it); });
    if (worker != status.workers.end()) {
      has_changed |= member.FollowWorker(*worker);
    } else {
      member.FollowUnknownWorker(status);
    }
  }
  if (has_changed) PublishEndpoints();
}

void MemberTable::Reset() {
  const TrainingJobSpec& spec = job_.job.spec;
  std::erase_if(members_, [&](const auto& entry) {
    const bool is_worker = entry.second.role() == JobRole::kWorker;
    return entry.second.index() >= (is_worker ? spec.workers.replicas : spec.servers.replicas);
  });
  for (auto& [name, member] : members_) member.Reset();
}

void MemberTable::PublishEndpoints() const {
  std::vector<Endpoint> endpoints;
  for (const auto& [name, member] : members_) {
    if (member.is_running()) endpoints.push_back(member.endpoint());
  }
  // A full disk must not end the job; `status` and scrapers then read the old list.
  const absl::Status written = job_.workdir.WriteEndpoints(endpoints);
  if (!written.ok()) std::fprintf(stderr, "pushpull: %s\n", std::string(written.message()).c_str());
}

// ---- stop ----

bool MemberTable::Stop(std::vector<StopStage> stages) {
  stages_ = std::move(stages);
  is_requested_ = false;
  return ContinueStop();
}

bool MemberTable::ContinueStop() {
  while (!stages_.empty()) {
    const std::vector<const MemberProcess*> running = Running(stages_.front().roles);
    if (running.empty()) {
      stages_.erase(stages_.begin());
      is_requested_ = false;
      continue;
    }
    if (std::exchange(is_requested_, true)) return false;
    for (const MemberProcess* member : running) member->RequestEnd(stages_.front().is_urgent);
    job_.loop.Cancel(kill_timer_);
    kill_timer_ = job_.loop.RunAfter(stages_.front().grace, [this] {
      for (const MemberProcess* member : Running(stages_.front().roles)) member->KillGroup();
    });
    return false;
  }
  job_.loop.Cancel(kill_timer_);
  return true;
}

void MemberTable::KillAll() const {
  for (const auto& [name, member] : members_) {
    if (member.is_running()) member.KillGroup();
  }
}

std::vector<const MemberProcess*> MemberTable::Running(const std::vector<JobRole>& roles) const {
  std::vector<const MemberProcess*> running;
  for (const auto& [name, member] : members_) {
    if (member.is_running() && absl::c_linear_search(roles, member.role()))
      running.push_back(&member);
  }
  return running;
}

}  // namespace pushpull
