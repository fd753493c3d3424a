// SPDX-License-Identifier: Apache-2.0
#include "operator/children/job_objects.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "operator/children/ownership.h"
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

ObjectKey NextTo(const ObjectMeta& owner, std::string name) {
  return {.object_namespace = owner.key.object_namespace, .name = std::move(name)};
}

std::string TextOf(const ObjectMeta& owner,
                   const ResourceType& type,
                   const char* kind,
                   const ObjectKey& key,
                   Json spec) {
  const std::string version = type.group.empty() ? type.version : type.group + "/" + type.version;
  return ToText({{"apiVersion", version},
                 {"kind", kind},
                 {"metadata",
                  {{"name", key.name},
                   {"namespace", key.object_namespace},
                   {"labels", JobLabels(owner.key.name)},
                   {"ownerReferences", OwnerReferences(owner)}}},
                 {"spec", std::move(spec)}});
}

Json MembersOf(const ObjectMeta& owner) {
  return {{"matchLabels", {{kJobLabel, owner.key.name}}}};
}

Json MembersOf(const ObjectMeta& owner, JobRole role) {
  return {{"matchLabels",
           {{kJobLabel, owner.key.name}, {kComponentLabel, std::string(ComponentOf(role))}}}};
}

JobObject CoordinatorService(const ObjectMeta& owner) {
  const ObjectKey key = NextTo(owner, PodName(owner.key.name, {}));
  const Json spec{{"clusterIP", "None"},
                  // Members connect while it still collects their state, before it is ready.
                  {"publishNotReadyAddresses", true},
                  {"selector", MembersOf(owner, JobRole::kCoordinator)["matchLabels"]},
                  {"ports", Json::array({{{"name", "control"}, {"port", kControlPort}}})}};
  return {.type = ServiceType(),
          .key = key,
          .text = TextOf(owner, ServiceType(), "Service", key, spec)};
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
  const ObjectKey key = NextTo(owner, owner.key.name);
  if (spec.security.network_policy.value_or(NetworkPolicy::kIsolated) == NetworkPolicy::kOff)
    return {.type = kNetworkPolicies, .key = key, .text = ""};
  Json control{{"ports", Json::array({Port(kControlPort)})}};
  if (!operator_namespace.empty()) control["from"] = OperatorsPods(operator_namespace);
  const Json policy{{"podSelector", MembersOf(owner)},
                    {"policyTypes", {"Ingress"}},
                    {"ingress",
                     Json::array({{{"from", Json::array({{{"podSelector", MembersOf(owner)}}})}},
                                  {{"ports", MetricsPorts(spec)}},
                                  std::move(control)})}};
  return {.type = kNetworkPolicies,
          .key = key,
          .text = TextOf(owner, kNetworkPolicies, "NetworkPolicy", key, policy)};
}

JobObject ServersBudget(const ObjectMeta& owner, const TrainingJobSpec& spec) {
  const ObjectKey key = NextTo(owner, absl::StrCat(owner.key.name, "-servers"));
  const bool is_wanted = !spec.scheduling || spec.scheduling->pdb;
  if (!is_wanted) return {.type = kDisruptionBudgets, .key = key, .text = ""};
  const Json budget{{"maxUnavailable", 1}, {"selector", MembersOf(owner, JobRole::kServer)}};
  return {.type = kDisruptionBudgets,
          .key = key,
          .text = TextOf(owner, kDisruptionBudgets, "PodDisruptionBudget", key, budget)};
}

}  // namespace

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

}  // namespace pushpull_operator
