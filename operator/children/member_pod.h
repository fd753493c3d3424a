// SPDX-License-Identifier: Apache-2.0
//
// The pod of a member as JSON: image, command, environment and ports that the programs of
// runtime/cmd know. It meets the Pod Security level `restricted` unless the user's template
// prevents that. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "operator/api/member.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

// A pod's security context as JSON: for the level `restricted`, with a user that need not exist in
// the project's images. Users' images may run as it as well. Clusters that assign users themselves
// need those fields unset.
inline constexpr char kSecurityContext[] =
    R"({"runAsNonRoot":true,"runAsUser":65532,"runAsGroup":65532,"fsGroup":65532,)"
    R"("seccompProfile":{"type":"RuntimeDefault"}})";

struct PodSettings {
  std::string runtime_image;  // of servers and coordinator, if the job names none
  std::string log_level = "info";
  std::string security_context = kSecurityContext;
  std::string operator_namespace = {};  // of the operator's pods; empty: not in a cluster
};

struct MemberStart {
  MemberId member;
  int64_t term = 0;  // of a coordinator
  bool goes_on =
      false;  // from the job's own last checkpoint, whatever spec.checkpoint.restoreFrom says
};

// A pod of the job, which owns it. The spec of `job` is valid.
std::string MemberPodText(const ObjectMeta& owner,
                          const TrainingJobObject& job,
                          const MemberStart& start,
                          const PodSettings& settings);

// A merge patch that sets these labels on the object with this uid.
std::string LabelsPatchText(const std::string& uid,
                            const std::map<std::string, std::string>& labels);

}  // namespace pushpull_operator
