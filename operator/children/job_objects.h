// SPDX-License-Identifier: Apache-2.0
//
// The objects of which a job has one each, whatever its number of members, as JSON for server-side
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
// Of workers that sum among themselves: in mode AllReduce, or with spec.sync.localReduce.
inline constexpr int kRingPort = 7172;
inline constexpr int kMetricsPort = 9464;
// Of a server in a worker's pod, where both share one address.
inline constexpr int kColocatedMetricsPort = 9465;

// The Service through which members of the job find its coordinator: its name, and host:port.
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

// The coordinator's headless Service "<job>-coordinator". Also, unless the spec says otherwise:
//
// - the NetworkPolicy "<job>": admits members of the job to all ports, everybody to metrics, the
//   operator to control. An operator outside the cluster (`operator_namespace` is empty) cannot
//   be named by a policy, so control is open to everybody then. Egress is not limited: the user's
//   program may load its data from anywhere.
// - the PodDisruptionBudget "<job>-servers": a drain takes one server at a time.
//
// `spec` is valid.
std::vector<JobObject> JobObjects(const ObjectMeta& owner,
                                  const pushpull::TrainingJobSpec& spec,
                                  const std::string& operator_namespace);

// The job's TrainingJobWorkers, to be created under the job's name.
std::string WorkersScaleText(const ObjectMeta& owner, const WorkersSize& size);

// A merge patch that turns `present`, and no later version of it, into `wanted`. Other fields in
// its spec are removed; the API server sets its defaults again. Labels and annotations set by
// others stay.
std::string HealPatchText(const JobObject& wanted, const Object& present);

}  // namespace pushpull_operator
