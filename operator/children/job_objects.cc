// SPDX-License-Identifier: Apache-2.0
#include "operator/children/job_objects.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "operator/kube/json_fields.h"
#include "runtime/base/host_port.h"

namespace pushpull_operator {

using pushpull::JobRole;
using pushpull::NetworkPolicy;
using pushpull::TrainingJobSpec;

namespace {

const ResourceType kNetworkPolicies{
    .group = "networking.k8s.io", .version = "v1", .plural = "networkpolicies"};
const ResourceType kDisruptionBudgets{
    .group = "policy", .version = "v1", .plural = "poddisruptionbudgets"};

// With a null `spec`: the job has no such object.
JobObject Child(const ObjectMeta& owner,
                const ResourceType& type,
                const char* kind,
                const std::string& name,
                Json spec) {
  JobObject child{.type = type,
                  .key = {.object_namespace = owner.key.object_namespace, .name = name}};
  if (spec.is_null()) return child;
  const std::string version = type.group.empty() ? type.version : type.group + "/" + type.version;
  child.text = ToText({{"apiVersion", version},
                       {"kind", kind},
                       {"metadata", ChildMetadata(owner, name)},
                       {"spec", std::move(spec)}});
  return child;
}

Json MembersOf(const ObjectMeta& owner) {
  return {{"matchLabels", {{kJobLabel, owner.key.name}}}};
}

Json MembersOf(const ObjectMeta& owner, JobRole role) {
  return {{"matchLabels",
           {{kJobLabel, owner.key.name}, {kComponentLabel, std::string(ComponentOf(role))}}}};
}

JobObject CoordinatorService(const ObjectMeta& owner) {
  const Json spec{{"clusterIP", "None"},
                  // Members connect before it is ready, while it collects their state.
                  {"publishNotReadyAddresses", true},
                  {"selector", MembersOf(owner, JobRole::kCoordinator)["matchLabels"]},
                  {"ports", Json::array({{{"name", "control"}, {"port", kControlPort}}})}};
  return Child(owner, ServiceType(), "Service", PodName(owner.key.name, {}), spec);
}

Json Port(int port) {
  return {{"protocol", "TCP"}, {"port", port}};
}

Json MetricsPorts(const TrainingJobSpec& spec) {
  Json ports = Json::array({Port(kMetricsPort)});
  if (spec.workers.colocated_server) ports.push_back(Port(kColocatedMetricsPort));
  return ports;
}

Json OperatorsPods(const std::string& operator_namespace) {
  return Json::array(
      {{{"namespaceSelector",
         {{"matchLabels", {{"kubernetes.io/metadata.name", operator_namespace}}}}},
        {"podSelector",
         {{"matchLabels",
           {{kComponentLabel, "operator"}, {"app.kubernetes.io/part-of", "pushpull"}}}}}}});
}

JobObject Isolation(const ObjectMeta& owner,
                    const TrainingJobSpec& spec,
                    const std::string& operator_namespace) {
  const bool is_off =
      spec.security.network_policy.value_or(NetworkPolicy::kIsolated) == NetworkPolicy::kOff;
  Json control{{"ports", Json::array({Port(kControlPort)})}};
  if (!operator_namespace.empty()) control["from"] = OperatorsPods(operator_namespace);
  const Json policy{{"podSelector", MembersOf(owner)},
                    {"policyTypes", {"Ingress"}},
                    {"ingress",
                     Json::array({{{"from", Json::array({{{"podSelector", MembersOf(owner)}}})}},
                                  {{"ports", MetricsPorts(spec)}},
                                  std::move(control)})}};
  return Child(owner, kNetworkPolicies, "NetworkPolicy", owner.key.name, is_off ? Json() : policy);
}

JobObject ServersBudget(const ObjectMeta& owner, const TrainingJobSpec& spec) {
  const std::string name = absl::StrCat(owner.key.name, "-servers");
  const bool is_wanted = spec.servers.replicas > 0 && (!spec.scheduling || spec.scheduling->pdb);
  const Json budget{{"maxUnavailable", 1}, {"selector", MembersOf(owner, JobRole::kServer)}};
  return Child(owner, kDisruptionBudgets, "PodDisruptionBudget", name, is_wanted ? budget : Json());
}

// RFC 7386. Lists are replaced whole.
Json PatchBetween(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  Json patch = Json::object();
  for (const auto& [key, value] : to.items())
    patch[key] = from.contains(key) ? PatchBetween(from[key], value) : value;
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace

const std::vector<ResourceType>& WatchedChildren() {
  static const std::vector<ResourceType> kinds{ServiceType(), kNetworkPolicies, kDisruptionBudgets};
  return kinds;
}

std::string HealPatchText(const JobObject& wanted, const Object& present) {
  const Json to = ParseJson(wanted.text).value_or(Json::object());
  return ToText(
      {{"metadata",
        {{"resourceVersion", present.meta.resource_version},
         {"labels", ObjectField(ObjectField(to, "metadata"), "labels")}}},
       {"spec", PatchBetween(ObjectField(*present.json, "spec"), ObjectField(to, "spec"))}});
}

Json ChildMetadata(const ObjectMeta& owner, const std::string& name) {
  return {{"name", name},
          {"namespace", owner.key.object_namespace},
          {"labels", JobLabels(owner.key.name)},
          {"ownerReferences",
           Json::array({{{"apiVersion", pushpull::kTrainingJobApiVersion},
                         {"kind", pushpull::kTrainingJobKind},
                         {"name", owner.key.name},
                         {"uid", owner.uid},
                         {"controller", true},
                         {"blockOwnerDeletion", true}}})}};
}

std::string CoordinatorHost(const ObjectKey& job) {
  return absl::StrCat(PodName(job.name, {}), ".", job.object_namespace, ".svc");
}

std::string CoordinatorAddress(const ObjectKey& job) {
  return absl::StrCat(CoordinatorHost(job), ":", kControlPort);
}

std::string CoordinatorAddressAt(const std::string& pod_ip) {
  return ToString(pushpull::HostPort{.host = pod_ip, .port = kControlPort});
}

std::vector<JobObject> JobObjects(const ObjectMeta& owner,
                                  const TrainingJobSpec& spec,
                                  const std::string& operator_namespace) {
  return {CoordinatorService(owner),
          Isolation(owner, spec, operator_namespace),
          ServersBudget(owner, spec)};
}

std::string WorkersScaleText(const ObjectMeta& owner, const WorkersSize& size) {
  return Child(owner,
               TrainingJobWorkersType(),
               kTrainingJobWorkersKind,
               owner.key.name,
               {{"replicas", size.replicas},
                {"minReplicas", size.min_replicas},
                {"maxReplicas", size.max_replicas}})
      .text;
}

}  // namespace pushpull_operator
