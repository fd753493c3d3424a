// SPDX-License-Identifier: Apache-2.0
//
// The pod of a member and the Service of the coordinator as JSON: images, commands, environment and
// ports that the programs of runtime/cmd know. Pods pass the level `restricted` unless the user's
// template says otherwise. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "operator/api/member.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"
#include "operator/kube/resource.h"

namespace pushpull_operator {

inline const ResourceType& ServiceType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "services"};
  return type;
}

struct PodSettings {
  std::string runtime_image;  // of servers and coordinator, where the job names none
  std::string log_level = "info";
};

struct MemberStart {
  MemberId member;
  int64_t term = 0;  // of a coordinator
  bool goes_on =
      false;  // from the job's own last checkpoint, whatever spec.checkpoint.restoreFrom says
};

// Where the members of the job find its coordinator: host:port.
std::string CoordinatorAddress(const ObjectKey& job);

// A pod of the job, which owns it. `job` has a sound spec.
std::string MemberPodText(const ObjectMeta& owner,
                          const TrainingJobObject& job,
                          const MemberStart& start,
                          const PodSettings& settings);

// The headless Service "<job>-coordinator", for a server-side apply.
ObjectKey CoordinatorServiceKey(const ObjectKey& job);
std::string CoordinatorServiceText(const ObjectMeta& owner);

}  // namespace pushpull_operator
