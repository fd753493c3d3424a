// SPDX-License-Identifier: Apache-2.0
//
// Carries out what is decided about one job: looks at caches and coordinator, plans, writes the
// status, then acts (job_plan.h says why in this order). All that it remembers between two calls
// may be lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/cache/store.h"
#include "operator/children/member_pod.h"
#include "operator/controller/certificate_keeper.h"
#include "operator/controller/event_history.h"
#include "operator/controller/job_coordinator.h"
#include "operator/controller/object_maker.h"
#include "operator/kube/client.h"
#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Jobs and their pods as the API server has them. Pods are indexed by PodIndex.
using JobStore = Store<TrainingJobObject>;
using PodStore = Store<Pod>;

// "default/mnist" for a pod of that job; empty for other pods.
std::string PodIndex(const ObjectMeta& pod);

struct ReconcilerOptions {
  PodSettings pods;
  std::string instance;                // of this operator, for events
  std::function<WallTime()> now;       // of the API server
  std::chrono::seconds call_time{10};  // for each call to the API server
  // For each call to a coordinator, all of which answer from memory. One that does not keeps a
  // worker from the other jobs for so long.
  std::chrono::seconds coordinator_time{3};
  // Of the certificate of a job's members.
  std::chrono::seconds certificate_life{std::chrono::days(90)};
  // A restart was counted, for this reason; for metrics. May be empty.
  std::function<void(const std::string& reason)> on_restart;
};

// Thread-safe; a job is for one thread at a time, as the work queue has it.
class JobReconciler {
 public:
  // All must outlive the reconciler.
  JobReconciler(KubeClient& client,
                const pushpull::TimeSource& time,
                const JobStore& jobs,
                const PodStore& pods,
                JobCoordinator& coordinators,
                ReconcilerOptions options);

  // Blocks on calls to the API server and the job's coordinator. Returns after which time to look
  // at the job again though nothing is heard of it; nothing: only a change matters. An error: try
  // again, with growing delays; what was written stays and is not written twice.
  absl::StatusOr<std::optional<std::chrono::seconds>> Reconcile(const ObjectKey& job)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What is known of a job beside the caches.
  struct Memory {
    std::string job_uid;
    // The caches are behind as long as they show this version of the job,
    std::string replaced_version;
    // or do not show these pods, which were made; but not beyond that time.
    std::map<std::string, std::string> made_pods;  // name -> uid
    WallTime trust_caches_at{};
    std::optional<uint64_t> save;
    std::optional<WallTime> news_time;
    std::string refusal;
    std::optional<Obstacle> obstacle;
    std::optional<int64_t> unused_term;
    bool has_tried_pods = false;
    EventHistory events;
    MemberCertificates certificates;
    std::optional<Obstacle> no_certificates;  // why they could not be had, when last looked for
    // A coordinator that refuses connections does not cost a read of the Secret before then.
    WallTime reread_at{};
    // The coordinator in this pod did not answer in time, and is left alone until then.
    std::string silent_uid;
    std::chrono::seconds silent_pause{0};
    WallTime ask_again_at{};
  };
  struct Job;  // of one call

  Memory Recall(const ObjectKey& key, const std::string& uid) ABSL_LOCKS_EXCLUDED(mu_);
  void Remember(const ObjectKey& key, Memory memory) ABSL_LOCKS_EXCLUDED(mu_);
  bool AreCachesBehind(const Job& job, Memory& memory) const;
  std::optional<CoordinatorWord> Ask(const Job& job, Memory& memory);
  absl::StatusOr<CoordinatorWord> AskAt(const Job& job, const Stored<Pod>& pod, Memory& memory);
  // Looks at the job's Secret if it is time to.
  absl::Status KeepCertificates(const Job& job, const Observation& seen, Memory& memory);
  absl::Status LookAtCertificates(const Job& job, Memory& memory);
  // kUnavailable: nobody knows its certificates.
  absl::StatusOr<CoordinatorPlace> PlaceOf(const Job& job,
                                           const Stored<Pod>& pod,
                                           const Memory& memory) const;
  std::optional<std::chrono::seconds> NextLookAt(const Job& job,
                                                 const Observation& seen,
                                                 const JobPlan& plan,
                                                 const Memory& memory) const;
  absl::StatusOr<std::optional<std::chrono::seconds>> CarryOut(const Job& job, Memory& memory);
  absl::Status Write(const Job& job, const JobPlan& plan, Memory& memory);
  void Tell(const Job& job, const JobPlan& plan, Memory& memory);
  void Tell(const Job& job, const Event& event, const EventWrite& write);
  absl::Status DoAll(const Job& job, const JobPlan& plan, Memory& memory);
  absl::Status Do(const Job& job, const JobPlan& plan, const Action& action, Memory& memory);
  absl::Status AskCoordinator(const Job& job, const Action& action, Memory& memory);
  absl::Status Make(const Job& job, const JobPlan& plan, const CreatePod& create, Memory& memory);
  absl::StatusOr<ObjectMeta> MakeAll(const Job& job,
                                     const JobPlan& plan,
                                     const CreatePod& create,
                                     Memory& memory);
  absl::Status Remove(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);
  pushpull::Deadline CallDeadline() const;
  pushpull::Deadline CoordinatorDeadline() const;

  KubeClient& client_;
  const pushpull::TimeSource& time_;  // of deadlines
  const JobStore& jobs_;
  const PodStore& pods_;
  JobCoordinator& coordinators_;
  const ReconcilerOptions options_;
  ObjectMaker maker_;
  CertificateKeeper keeper_;

  pushpull::Mutex mu_;
  std::map<ObjectKey, Memory> memory_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
