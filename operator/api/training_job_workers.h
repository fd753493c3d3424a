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
  // The last desired number on which the job and this object agreed; nothing: none yet.
  std::optional<int> agreed_replicas = {};
  bool is_finished = false;  // the job has
  friend bool operator==(const WorkersScaleStatus&, const WorkersScaleStatus&) = default;
};

struct TrainingJobWorkers {
  WorkersSize size;
  WorkersScaleStatus status;
};

// Accepts any object; a field that is missing or not a number is 0.
TrainingJobWorkers DecodeTrainingJobWorkers(const Object& object);

// Merge patches for this version of a TrainingJobWorkers, and no later one.
std::string SizePatchText(const WorkersSize& size, const std::string& resource_version);
std::string ScaleStatusPatchText(const WorkersScaleStatus& status,
                                 const std::string& resource_version);

// Likewise for spec.workers.replicas of a TrainingJob.
std::string WorkerReplicasPatchText(int replicas, const std::string& resource_version);

}  // namespace pushpull_operator
