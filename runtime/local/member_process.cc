// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/member_process.h"

#include <unistd.h>

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

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

// The text at `key`; empty if there is none.
std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

std::string MemberName(JobRole role, int index) {
  return role == JobRole::kCoordinator ? RoleName(role) : absl::StrCat(RoleName(role), "-", index);
}

MemberProcess::MemberProcess(JobRole role, int index, EventLoop& loop, Guardian& guardian)
    : role_(role),
      loop_(loop),
      guardian_(guardian),
      endpoint_{.role = RoleName(role), .index = static_cast<uint32_t>(index)} {}

absl::Status MemberProcess::Start(const ProcessSpec& spec,
                                  const std::string& log_path,
                                  MemberEvents events) {
  if (!log_.is_open()) log_.open(log_path, std::ios::trunc);
  has_been_ready_ = false;
  started_at_ = loop_.Now();
  events_ = std::move(events);
  PUSHPULL_ASSIGN_OR_RETURN(
      process_,
      ChildProcess::Start(spec,
                          loop_,
                          {.on_forked = [this](pid_t group) { guardian_.Watch(group); },
                           .on_output =
                               [this](const std::string& line) {
                                 log_ << line << '\n' << std::flush;
                                 events_.on_output(line);
                               },
                           .on_ready = [this](const std::string& line) { OnReady(line); },
                           .on_end = [this](const ProcessEnd& end) { OnEnd(end); }}));
  endpoint_ = {.role = endpoint_.role, .index = endpoint_.index, .pid = process_->pid()};
  return absl::OkStatus();
}

void MemberProcess::OnReady(const std::string& line) {
  const nlohmann::json addresses = nlohmann::json::parse(line, nullptr, false);
  if (!addresses.is_object()) return;
  has_been_ready_ = true;
  endpoint_.control = TextAt(addresses, "control");
  endpoint_.data = TextAt(addresses, "data");
  endpoint_.metrics = TextAt(addresses, "metrics");
  events_.on_ready();
}

void MemberProcess::OnEnd(const ProcessEnd& end) {
  guardian_.Forget(process_->pid());
  // This runs in a callback of the process: it is deleted after that has returned.
  loop_.Post([ended = std::shared_ptr<ChildProcess>(std::move(process_))] {});
  // A copy: the callee may start the member anew or delete it.
  const auto on_end = events_.on_end;
  on_end(end);
}

bool MemberProcess::IsInGroup(pid_t pid) const {
  return is_running() && pid > 0 && getpgid(pid) == process_->pid();
}

bool MemberProcess::SetWorkerAddress(pid_t pid, const std::string& metrics) {
  if (endpoint_.pid == pid && endpoint_.metrics == metrics) return false;
  endpoint_.pid = pid;
  endpoint_.metrics = metrics;
  return true;
}

void MemberProcess::RequestEnd() const {
  process_->EndNow();
  process_->Signal(SIGCONT);
}

}  // namespace pushpull
