// SPDX-License-Identifier: Apache-2.0
//
// One job, its pods and its coordinator's report as a test sets them: each Step plans once, writes
// the status and carries the plan out, as operator and API server would.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/plan/plan.h"

namespace pushpull_operator {

class World {
 public:
  // A new job "mnist" of this size.
  World(int servers, int workers);

  pushpull::TrainingJobSpec& spec() { return seen.object.job.spec; }
  const TrainingJobStatus& status() const { return seen.object.status; }
  const Condition* Find(const std::string& type) const;
  // "True AllReady", "" where there is none.
  std::string Say(const std::string& type) const;

  // Plans, and carries the plan out. `done` lists the actions: "create server-0", "delete
  // worker-1", "delete worker-1 at once", "ask servers=4 workers=2", "ask without worker-1", "ask
  // done worker-1", "sync Bounded 3 0" (staleness, backup workers), "save", "delete job". With
  // `crash_after`, the operator dies: 0, before the status is written; n, after the status and n -
  // 1 actions.
  JobPlan Step(std::optional<int> crash_after = std::nullopt);
  // The next Step sees these pods, as a cache that lags behind would.
  void SeeLate(std::map<std::string, ObservedPod> earlier) { late_ = std::move(earlier); }
  // Steps until nothing is left to do; false: not within 50.
  bool Settle();
  void Pass(std::chrono::seconds time) { seen.now += time; }

  // Every pod runs and is ready, and its member is known to the coordinator.
  void RunPods();
  // The coordinator, if it answers, hears of every member that runs.
  void MeetMembers();
  // The coordinator agrees to whatever size it was asked for, and has moved all shards.
  void AgreeToSize();
  // All the way to Running.
  bool Start();

  ObservedPod& pod(const std::string& member);
  bool Has(const std::string& member) const { return pods.contains("mnist-" + member); }
  void Exit(const std::string& member, int code, const std::string& reason = "");
  // The server in that worker's pod ends, of spec.workers.colocatedServer.
  void ExitBeside(const std::string& worker, int code);
  // Somebody deletes the pod; it is there until Vanish.
  void BeginDeletion(const std::string& member);
  void Vanish(const std::string& member);
  // All that are being deleted vanish.
  void VanishDeleted();

  // The spec was changed by the user.
  void Bump() { ++seen.meta.generation; }

  Observation seen;  // but for the pods
  std::map<std::string, ObservedPod> pods;
  std::vector<std::string> done;  // since the last Take
  std::vector<Event> events;      // likewise
  std::vector<std::string> Take() { return std::exchange(done, {}); }

 private:
  void Do(const Action& action);

  int num_pods_ = 0;
  std::optional<std::map<std::string, ObservedPod>> late_;
  RequestSize asked_;
};

}  // namespace pushpull_operator
