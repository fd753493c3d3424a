// SPDX-License-Identifier: Apache-2.0
//
// The objects that a job has once, whatever the number of its members, as JSON for a server-side
// apply: Service, NetworkPolicy, PodDisruptionBudget. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "operator/api/training_job_workers.h"
#include "operator/kube/object.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

inline const ResourceType& ServiceType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "services"};
  return type;
}

// The kinds of JobObjects.
const std::vector<ResourceType>& WatchedChildren();

// Ports of every member, wherever it runs; docs/interfaces.md section 6.
inline constexpr uint16_t kControlPort = 7170;
inline constexpr int kDataPort = 7171;
inline constexpr int kRingPort = 7172;  // of workers in mode AllReduce
inline constexpr int kMetricsPort = 9464;
// Of a server in a worker's pod, which has one address for both.
inline constexpr int kColocatedMetricsPort = 9465;

// The name of the Service by which the members of the job find its coordinator, and with its port:
// host:port.
std::string CoordinatorHost(const ObjectKey& job);
std::string CoordinatorAddress(const ObjectKey& job);
// Where a coordinator whose pod has this address listens: host:port.
std::string CoordinatorAddressAt(const std::string& pod_ip);

// The metadata of a child `name` of the TrainingJob `owner`, which controls it: Kubernetes' garbage
// collector deletes it with the job. For .cc files of operator/children.
nlohmann::json ChildMetadata(const ObjectMeta& owner, const std::string& name);

struct JobObject {
  ResourceType type;
  ObjectKey key;
  std::string text;  // empty: the job has none
};

// The coordinator's headless Service "<job>-coordinator". Unless the spec says otherwise also
//
// - the NetworkPolicy "<job>": admits members of the job to all ports, everybody to metrics, the
//   operator to control. An operator outside of the cluster (`operator_namespace` is empty) cannot
//   be named by a policy, so control is open to everybody then. Egress is not limited: the user's
//   program may load its data from anywhere.
// - the PodDisruptionBudget "<job>-servers": a drain takes one server at a time.
//
// `spec` is valid.
std::vector<JobObject> JobObjects(const ObjectMeta& owner,
                                  const pushpull::TrainingJobSpec& spec,
                                  const std::string& operator_namespace);

// The TrainingJobWorkers of the job, of its name, to be created.
std::string WorkersScaleText(const ObjectMeta& owner, const WorkersSize& size);

// A merge patch that makes `present`, and no later version of it, what JobObjects says: what it has
// beside in its spec is taken out, and the API server's defaults come back by themselves. Labels
// and annotations of others stay.
std::string HealPatchText(const JobObject& wanted, const Object& present);

}  // namespace pushpull_operator
