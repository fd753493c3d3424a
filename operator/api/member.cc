// SPDX-License-Identifier: Apache-2.0
#include "operator/api/member.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pushpull_operator {

using pushpull::JobRole;

absl::string_view ComponentOf(JobRole role) {
  switch (role) {
    case JobRole::kServer:
      return "server";
    case JobRole::kWorker:
      return "worker";
    case JobRole::kCoordinator:
      return "coordinator";
  }
  return "?";
}

std::string PodName(absl::string_view job, const MemberId& member) {
  const absl::string_view component = ComponentOf(member.role);
  return member.role == JobRole::kCoordinator
             ? absl::StrCat(job, "-", component)
             : absl::StrCat(job, "-", component, "-", member.index);
}

std::map<std::string, std::string> JobLabels(absl::string_view job) {
  return {{"app.kubernetes.io/name", "pushpull"},
          {"app.kubernetes.io/instance", std::string(job)},
          {kManagedByLabel, kManagedBy},
          {kJobLabel, std::string(job)}};
}

std::map<std::string, std::string> MemberLabels(absl::string_view job, const MemberId& member) {
  std::map<std::string, std::string> labels = JobLabels(job);
  labels[kComponentLabel] = std::string(ComponentOf(member.role));
  labels[kIndexLabel] = absl::StrCat(member.index);
  return labels;
}

std::string JobOf(const ObjectMeta& child) {
  const auto job = child.labels.find(kJobLabel);
  if (job == child.labels.end()) return "";
  return ToString(ObjectKey{.object_namespace = child.key.object_namespace, .name = job->second});
}

bool HasLabels(const ObjectMeta& child, const std::map<std::string, std::string>& labels) {
  return std::ranges::all_of(labels, [&](const auto& label) {
    const auto found = child.labels.find(label.first);
    return found != child.labels.end() && found->second == label.second;
  });
}

std::string SelectorOf(absl::string_view job, JobRole role) {
  return absl::StrCat(kJobLabel, "=", job, ",", kComponentLabel, "=", ComponentOf(role));
}

std::optional<MemberId> MemberOf(const std::map<std::string, std::string>& labels) {
  const auto component = labels.find(kComponentLabel);
  const auto index = labels.find(kIndexLabel);
  if (component == labels.end() || index == labels.end()) return std::nullopt;
  MemberId member;
  if (!absl::SimpleAtoi(index->second, &member.index) || member.index < 0) return std::nullopt;
  for (const JobRole role : {JobRole::kServer, JobRole::kWorker, JobRole::kCoordinator}) {
    if (component->second != ComponentOf(role)) continue;
    member.role = role;
    return member;
  }
  return std::nullopt;
}

std::optional<MemberId> MemberOfPod(absl::string_view job, absl::string_view pod_name) {
  for (const JobRole role : {JobRole::kServer, JobRole::kWorker, JobRole::kCoordinator}) {
    MemberId member{.role = role};
    const absl::string_view digits = pod_name.substr(pod_name.rfind('-') + 1);
    if (role != JobRole::kCoordinator && !absl::SimpleAtoi(digits, &member.index)) continue;
    if (member.index >= 0 && PodName(job, member) == pod_name) return member;
  }
  return std::nullopt;
}

}  // namespace pushpull_operator
