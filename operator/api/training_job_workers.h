// SPDX-License-Identifier: Apache-2.0
//
// TrainingJobWorkers: the workers of a job as something that `kubectl scale` and an HPA can scale
// (docs/decisions/0067-workers-scale-by-a-kind-of-their-own.md). Pure.
#pragma once

#include <optional>
#include <string>

#include "operator/kube/object.h"

namespace pushpull_operator {

inline const ResourceType& TrainingJobWorkersType() {
  static const ResourceType type{
      .group = "pushpull.dev", .version = "v1alpha1", .plural = "trainingjobworkers"};
  return type;
}
inline constexpr char kTrainingJobWorkersKind[] = "TrainingJobWorkers";

// The spec.
struct WorkersSize {
  int replicas = 1;
  int min_replicas = 1;
  int max_replicas = 1;
  friend bool operator==(const WorkersSize&, const WorkersSize&) = default;
};

struct WorkersScaleStatus {
  int replicas = 0;  // pods
  std::string selector = {};
  // The desired number that the job and this object had in common last; nothing: none yet.
  std::optional<int> agreed_replicas = {};
  bool is_finished = false;  // the job has
  friend bool operator==(const WorkersScaleStatus&, const WorkersScaleStatus&) = default;
};

struct TrainingJobWorkers {
  WorkersSize size;
  WorkersScaleStatus status;
};

// Accepts any object; what is missing or no number is 0.
TrainingJobWorkers DecodeTrainingJobWorkers(const Object& object);

// Merge patches: of this version of a TrainingJobWorkers, and of no later one.
std::string SizePatchText(const WorkersSize& size, const std::string& resource_version);
std::string ScaleStatusPatchText(const WorkersScaleStatus& status,
                                 const std::string& resource_version);

// Likewise of a TrainingJob: spec.workers.replicas.
std::string WorkerReplicasPatchText(int replicas, const std::string& resource_version);

}  // namespace pushpull_operator
