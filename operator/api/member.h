// SPDX-License-Identifier: Apache-2.0
//
// The members of a job, and the names and labels of their pods, which users, selectors and the
// operator itself rely on. Pure.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "operator/kube/object.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

// Labels of every object that the operator creates; its watches select by the first.
inline constexpr char kManagedByLabel[] = "app.kubernetes.io/managed-by";
inline constexpr char kManagedBy[] = "pushpull-operator";
inline constexpr char kComponentLabel[] = "app.kubernetes.io/component";
inline constexpr char kJobLabel[] = "pushpull.dev/job";
inline constexpr char kIndexLabel[] = "pushpull.dev/index";
// On a coordinator's pod.
inline constexpr char kTermLabel[] = "pushpull.dev/term";

struct MemberId {
  pushpull::JobRole role = pushpull::JobRole::kCoordinator;
  int index = 0;  // 0 for a coordinator
  friend bool operator==(const MemberId&, const MemberId&) = default;
  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

// "server".
absl::string_view ComponentOf(pushpull::JobRole role);

// "mnist-server-2", "mnist-coordinator".
std::string PodName(absl::string_view job, const MemberId& member);

std::map<std::string, std::string> JobLabels(absl::string_view job);
std::map<std::string, std::string> MemberLabels(absl::string_view job, const MemberId& member);

// Key of the job named by the object's label, "default/mnist"; empty: it has no such label.
std::string JobOf(const ObjectMeta& child);

// Whether `child` has all of `labels`; it may have others.
bool HasLabels(const ObjectMeta& child, const std::map<std::string, std::string>& labels);

// The label selector of the pods of a role:
// "pushpull.dev/job=mnist,app.kubernetes.io/component=server".
std::string SelectorOf(absl::string_view job, pushpull::JobRole role);

// The member whose pod has these labels; nothing if they are not a member's.
std::optional<MemberId> MemberOf(const std::map<std::string, std::string>& labels);

// The member of the job whose pod has this name; nothing if there is none.
std::optional<MemberId> MemberOfPod(absl::string_view job, absl::string_view pod_name);

}  // namespace pushpull_operator
