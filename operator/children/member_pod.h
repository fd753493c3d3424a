// SPDX-License-Identifier: Apache-2.0
//
// The pod of a member as JSON: image, command, environment and ports that the programs of
// runtime/cmd know. It passes the level `restricted` unless the user's template prevents it.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "operator/api/member.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

// Of a pod, as JSON: the level `restricted`, as a user whom the project's images do not need to
// know. Users' images may use it as well. Clusters that choose users themselves want none.
inline constexpr char kSecurityContext[] =
    R"({"runAsNonRoot":true,"runAsUser":65532,"runAsGroup":65532,"fsGroup":65532,)"
    R"("seccompProfile":{"type":"RuntimeDefault"}})";

struct PodSettings {
  std::string runtime_image;  // of servers and coordinator, where the job names none
  std::string log_level = "info";
  std::string security_context = kSecurityContext;
  std::string operator_namespace = {};  // where the operator's pods are; empty: in no cluster
};

struct MemberStart {
  MemberId member;
  int64_t term = 0;  // of a coordinator
  bool goes_on =
      false;  // from the job's own last checkpoint, whatever spec.checkpoint.restoreFrom says
};

// A pod of the job, which owns it. `job` has a valid spec.
std::string MemberPodText(const ObjectMeta& owner,
                          const TrainingJobObject& job,
                          const MemberStart& start,
                          const PodSettings& settings);

// A merge patch that sets these labels of the object with this uid.
std::string LabelsPatchText(const std::string& uid,
                            const std::map<std::string, std::string>& labels);

}  // namespace pushpull_operator
