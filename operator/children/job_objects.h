// SPDX-License-Identifier: Apache-2.0
//
// What a job has once, whatever the number of its members, as JSON for a server-side apply: how its
// coordinator is found, who may talk to its members, how many servers a drained node may take.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "operator/kube/resource.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

inline const ResourceType& ServiceType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "services"};
  return type;
}

// Of every member, wherever it runs; interfaces.md section 6.
inline constexpr uint16_t kControlPort = 7170;
inline constexpr int kDataPort = 7171;
inline constexpr int kMetricsPort = 9464;
// Of a server in a worker's pod, which has one address for both.
inline constexpr int kColocatedMetricsPort = 9465;

// The name of the Service by which the members of the job find its coordinator, and with its port:
// host:port.
std::string CoordinatorHost(const ObjectKey& job);
std::string CoordinatorAddress(const ObjectKey& job);
// Where a coordinator whose pod has this address listens: host:port.
std::string CoordinatorAddressAt(const std::string& pod_ip);

struct JobObject {
  ResourceType type;
  ObjectKey key;
  std::string text;  // empty: the job shall have none
};

// The coordinator's headless Service "<job>-coordinator". Unless the spec says otherwise also
//
// - the NetworkPolicy "<job>": members of the job reach each other, everybody their metrics, the
//   operator their control. Where it runs outside of the cluster (`operator_namespace` is empty) no
//   policy can name it, and control is open to everybody. What members reach is not limited: the
//   user's program may want to load its data from anywhere.
// - the PodDisruptionBudget "<job>-servers": a drain takes one server at a time.
//
// `spec` is sound.
std::vector<JobObject> JobObjects(const ObjectMeta& owner,
                                  const pushpull::TrainingJobSpec& spec,
                                  const std::string& operator_namespace);

}  // namespace pushpull_operator
