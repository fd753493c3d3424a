// SPDX-License-Identifier: Apache-2.0
//
// A fake API server with one job, a test that plays kubelets and the job's coordinator, and an
// operator that can be killed at any of its writes and restarted.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/controller/child_cache.h"
#include "operator/controller/job_reconciler.h"
#include "operator/controller/secret_poll.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {

class PlayedCluster;

// The coordinator of the job, as far as the operator can tell: it agrees to every size, moves
// shards and saves at once. One of a later term than the first waits for a member to come.
class PlayedCoordinator final : public JobCoordinator {
 public:
  absl::StatusOr<CoordinatorReport> GetStatus(const CoordinatorEndpoint& endpoint,
                                              pushpull::Deadline) override;
  absl::Status Resize(const CoordinatorEndpoint& endpoint,
                      const RequestSize& size,
                      pushpull::Deadline) override;
  absl::Status SetSync(const CoordinatorEndpoint& endpoint,
                       const RequestSync& sync,
                       pushpull::Deadline) override;
  absl::StatusOr<uint64_t> Save(const CoordinatorEndpoint& endpoint, pushpull::Deadline) override;

  CoordinatorReport report;
  absl::Status trouble;      // what it answers with instead, unless it is OK
  absl::Status sync_answer;  // to SetSync
  std::function<absl::Status()>
      on_resize;  // what happens when it is asked for a size; may be empty
  int num_asked = 0;
  CoordinatorEndpoint endpoint;        // it was last asked at
  std::set<std::string> certificates;  // it was ever asked with; empty where without any
  std::string accepted;  // the only certificate that it accepts; empty: any, or none at all
};

// One life of the operator.
class PlayedOperator {
 public:
  explicit PlayedOperator(PlayedCluster& cluster);
  // Brings the caches up to date and reconciles the job once.
  absl::Status Step();
  absl::Status SyncCaches();
  // Only those of jobs and pods.
  absl::Status SyncPods();
  // One look at the job's Secret; false: the job has none of its own, or no members.
  bool PollSecrets();
  // Reconciles without a look at the API server.
  absl::Status ReconcileOnly();

  // When it wants to look at the job again, as of the last step that succeeded.
  std::optional<std::chrono::seconds> requeue;

 private:
  FakePausingTime time_;
  std::unique_ptr<Credentials> credentials_;
  KubeClient client_;
  JobStore jobs_;
  PodStore pods_;
  WorkersStore workers_;
  RuntimeStore runtimes_;
  ChildCache children_{[](const std::string&) {}};
  SecretPoll secret_poll_{client_, time_, jobs_, children_, {}};
  JobReconciler reconciler_;
};

class PlayedCluster {
 public:
  // A job "mnist" with this spec; without a runtime and a number, with one server and one worker.
  explicit PlayedCluster(const std::string& spec);
  // For jobs that name it.
  void PutRuntime(const std::string& name, int generation, const std::string& spec);

  nlohmann::json Job() const;
  // Of the job's own certificates; null where there is none.
  nlohmann::json Secret() const;
  TrainingJobStatus Status() const;
  // The user changes the spec.
  void Change(const std::function<void(nlohmann::json& spec)>& change);
  // Every pod runs and is known to the coordinator; servers that are not wanted end in order.
  void Play();
  void ExitPod(const std::string& member, int code);
  bool Has(const std::string& member) const;

  // Steps and plays until `is_reached`; an operator that was killed is followed by another one.
  // False: not within 60 steps.
  bool Until(const std::function<bool()>& is_reached);
  // The operator dies at its n-th write, right before or right after it is done.
  void KillAtWrite(int n, Fault::Kind side);
  int num_writes() const { return num_writes_; }
  int num_kills() const { return num_kills_; }

  FakeApiServer server;
  PlayedCoordinator coordinator;
  WallTime now{std::chrono::seconds(1'769'860'800)};
  std::unique_ptr<PlayedOperator> op;
  // Uids of all pods that there ever were, by member.
  std::map<std::string, std::set<std::string>> pods;

 private:
  Fault OnRequest(const FakeRequest& request);

  std::atomic<int> num_writes_ = 0;
  std::atomic<int> kill_at_ = 0;
  std::atomic<bool> is_dead_ = false;
  std::atomic<Fault::Kind> side_ = Fault::Kind::kNone;
  int num_kills_ = 0;
};

}  // namespace pushpull_operator
