// SPDX-License-Identifier: Apache-2.0
//
// The processes of a local job's members by name, and their endpoints in the workdir.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/local/member_process.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

struct LocalMember {
  LocalMember(JobRole role, int index, EventLoop& loop, Guardian& guardian)
      : process(role, index, loop, guardian) {}

  MemberProcess process;
  bool is_done = false;  // a worker that has finished its part
  // A server that the coordinator has listed as alive, and since when it no longer does.
  bool is_listed = false;
  std::optional<SteadyTime> unlisted_since;
};

// Thread-confined to the loop.
class MemberTable {
 public:
  struct Events {
    std::function<void(LocalMember&, const std::string& line)> on_output;
    std::function<void(LocalMember&)> on_ready;
    std::function<void(LocalMember&, const ProcessEnd&)> on_end;
  };

  // All references outlive the table.
  MemberTable(Workdir& workdir, Guardian& guardian, EventLoop& loop, Events events)
      : workdir_(workdir), guardian_(guardian), loop_(loop), events_(std::move(events)) {}

  // A member that ran before keeps its log. An error names the program that cannot be started.
  absl::Status Start(JobRole role, int index, const absl::StatusOr<ProcessSpec>& spec);
  // Null if it has never been started, or has been removed.
  LocalMember* Find(const std::string& name);
  std::vector<const MemberProcess*> Running(const std::vector<JobRole>& roles) const;
  bool AreServersReady() const;
  bool AreWorkersDone() const;

  // Indices of the desired members of a role that have to be started: never started here, or
  // released before and desired again.
  std::vector<int> Missing(JobRole role, const JobStatus& status) const;
  // Takes over what only workers know of themselves. Kills the processes that the coordinator has
  // given up: one that is stopped or hangs would never end by itself.
  void Follow(const JobStatus& status);

  void Remove(const std::string& name) { members_.erase(name); }
  // Before the whole job starts anew with the manifest's size.
  void Reset(int servers, int workers);

 private:
  bool IsReleased(const LocalMember& member, const JobStatus& status) const;
  void FollowServer(LocalMember& server, const JobStatus& status);
  // Rewrites endpoints.json.
  void PublishEndpoints() const;

  Workdir& workdir_;
  Guardian& guardian_;
  EventLoop& loop_;
  const Events events_;
  std::map<std::string, LocalMember> members_;
};

}  // namespace pushpull
