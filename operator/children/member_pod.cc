// SPDX-License-Identifier: Apache-2.0
#include "operator/children/member_pod.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "operator/children/job_objects.h"
#include "operator/children/overlay.h"
#include "operator/children/tls_secret.h"
#include "operator/kube/json_fields.h"
#include "runtime/base/colocated_server.h"
#include "runtime/base/termination_message.h"

namespace pushpull_operator {

using pushpull::JobRole;
using pushpull::TrainingJobSpec;

namespace {

// The manifest reaches the coordinator as an annotation of its own pod: no other object has to be
// written and read, and no permission for ConfigMaps is needed.
constexpr char kManifestAnnotation[] = "pushpull.dev/manifest";
constexpr char kManifestFolder[] = "/etc/pushpull";
constexpr char kManifestFile[] = "job.json";
// The shared memory of a worker and its colocated server (PUSHPULL_SHM_DIR).
constexpr char kShmFolder[] = "/run/pushpull/shm";
// Share of the parameters, relative to a server with its own pod and cores.
constexpr char kColocatedWeight[] = "0.5";
constexpr char kCheckpointFolder[] = "/var/lib/pushpull/checkpoints";
// Grace period: time for a worker to finish its step, and for a server to hand over its shards.
// Kubernetes' default of 30 s is too short for several gigabytes.
constexpr int64_t kGraceSeconds = 60;
// For a server to exit after its last handover, and for the kubelet to notice.
constexpr int64_t kGraceMargin = 10;
constexpr char kGraceField[] = "terminationGracePeriodSeconds";
constexpr char kLeaveVariable[] = "PUSHPULL_LEAVE_SECONDS";
constexpr char kLogLevelVariable[] = "PUSHPULL_LOG_LEVEL";

// Pods outlive their node's last sign of life no longer than the job allows.
Json Tolerations(const TrainingJobSpec& spec) {
  Json list = Json::array();
  for (const char* taint : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    list.push_back({{"key", taint},
                    {"operator", "Exists"},
                    {"effect", "NoExecute"},
                    {"tolerationSeconds", spec.restart.node_lost_after.count()}});
  }
  return list;
}

Json Variable(const std::string& name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

Json TerminationLog() {
  return Variable(pushpull::kTerminationLogVariable, pushpull::kTerminationLogOfPods);
}

// A field that the pod gets after its creation.
Json FromPod(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

Json PodIp() {
  return FromPod("POD_IP", "status.podIP");
}

Json HttpProbe(const char* path, int period_seconds) {
  return {{"httpGet", {{"path", path}, {"port", "metrics"}}},
          {"periodSeconds", period_seconds},
          {"timeoutSeconds", 5}};
}

Json Port(const char* name, int port) {
  return {{"name", name}, {"containerPort", port}};
}

// Common to the containers of all roles.
Json BaseContainer(JobRole role, int metrics_port) {
  return {{"name", std::string(ComponentOf(role))},
          {"ports", Json::array({Port("metrics", metrics_port)})},
          {"volumeMounts", Json::array({{{"name", "tmp"}, {"mountPath", "/tmp"}}})},
          // Puts the last output of a failed program into the pod's status and the job's events.
          {"terminationMessagePolicy", "FallbackToLogsOnError"},
          {"securityContext",
           {{"allowPrivilegeEscalation", false},
            {"readOnlyRootFilesystem", true},
            {"capabilities", {{"drop", {"ALL"}}}}}}};
}

Json BasePodSpec(const TrainingJobSpec& spec, const PodSettings& settings) {
  Json pod{{"automountServiceAccountToken", false},
           {"enableServiceLinks", false},
           {kGraceField, kGraceSeconds},
           {"securityContext", ParseJson(settings.security_context).value_or(Json::object())},
           {"tolerations", Tolerations(spec)},
           {"volumes", Json::array({{{"name", "tmp"}, {"emptyDir", Json::object()}}})}};
  if (spec.scheduling && !spec.scheduling->priority_class.empty())
    pod["priorityClassName"] = spec.scheduling->priority_class;
  return pod;
}

// All who read or write checkpoints must see them under one path.
std::string MountedCheckpoints(const pushpull::CheckpointSpec& checkpoint) {
  const std::string path = absl::StrCat(kCheckpointFolder, checkpoint.path);
  return std::string(absl::StripSuffix(path, "/"));
}

void MountCheckpoints(const TrainingJobSpec& spec, Json& container, Json& pod) {
  if (!spec.checkpoint) return;
  pod["volumes"].push_back({{"name", "checkpoints"},
                            {"persistentVolumeClaim", {{"claimName", spec.checkpoint->claim}}}});
  container["volumeMounts"].push_back({{"name", "checkpoints"}, {"mountPath", kCheckpointFolder}});
}

void FillCoordinator(const TrainingJobSpec& spec,
                     const MemberStart& start,
                     const PodSettings& settings,
                     Json& container,
                     Json& pod) {
  container["command"] = {"pushpull", "coordinator"};
  container["env"] = Json::array({TerminationLog()});
  Json& args = container["args"];
  args = {"--manifest",
          absl::StrCat(kManifestFolder, "/", kManifestFile),
          "--term",
          absl::StrCat(start.term),
          "--log-level",
          settings.log_level};
  // The API server enforces the limits of replicas. They may change while this coordinator runs, so
  // it must not refuse a size by what they were when it started.
  for (const char* limit : {"spec.servers.minReplicas=1",
                            "spec.servers.maxReplicas=1024",
                            "spec.workers.minReplicas=1",
                            "spec.workers.maxReplicas=4096"}) {
    args.push_back("--set");
    args.push_back(limit);
  }
  if (spec.checkpoint) {
    args.push_back("--checkpoints");
    args.push_back(MountedCheckpoints(*spec.checkpoint));
  }
  if (spec.checkpoint && start.goes_on) {
    for (const char* own : {"spec.checkpoint.restoreFrom=latest", "spec.checkpoint.restore=All"}) {
      args.push_back("--set");
      args.push_back(own);
    }
  }
  container["ports"].push_back(Port("control", kControlPort));
  container["readinessProbe"] = HttpProbe("/readyz", 2);
  container["livenessProbe"] = HttpProbe("/livez", 10);
  container["volumeMounts"].push_back(
      {{"name", "manifest"}, {"mountPath", kManifestFolder}, {"readOnly", true}});
  const std::string field = absl::StrCat("metadata.annotations['", kManifestAnnotation, "']");
  pod["volumes"].push_back(
      {{"name", "manifest"},
       {"downwardAPI",
        {{"items",
          Json::array({{{"path", kManifestFile}, {"fieldRef", {{"fieldPath", field}}}}})}}}});
  MountCheckpoints(spec, container, pod);
}

void SpreadServers(const std::string& job, Json& pod) {
  pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
      Json::array({{{"weight", 100},
                    {"podAffinityTerm",
                     {{"topologyKey", "kubernetes.io/hostname"},
                      {"labelSelector",
                       {{"matchLabels", {{kJobLabel, job}, {kComponentLabel, "server"}}}}}}}}});
}

void FillServer(const ObjectKey& job,
                const TrainingJobSpec& spec,
                uint32_t index,
                const PodSettings& settings,
                Json& container,
                Json& pod) {
  container["command"] = {"pushpull", "server"};
  container["args"] = {"--job",
                       job.name,
                       "--index",
                       absl::StrCat(index),
                       "--coordinator",
                       CoordinatorAddress(job),
                       "--advertise",
                       "$(POD_IP)",
                       "--threads",
                       absl::StrCat(spec.servers.threads),
                       "--log-level",
                       settings.log_level};
  container["env"] = Json::array({PodIp(), TerminationLog()});
  container["ports"].push_back(Port("data", kDataPort));
  container["readinessProbe"] = HttpProbe("/readyz", 2);
  container["livenessProbe"] = HttpProbe("/livez", 10);
  MountCheckpoints(spec, container, pod);
}

void LayOverText(const std::string& overlay, Json& base) {
  if (overlay.empty()) return;
  if (const std::optional<Json> parsed = ParseJson(overlay)) LayOver(*parsed, base);
}

void MountSharedMemory(Json& container) {
  container["volumeMounts"].push_back({{"name", "shm"}, {"mountPath", kShmFolder}});
  container["env"].push_back(Variable("PUSHPULL_SHM_DIR", kShmFolder));
}

// A server next to the worker, in the same pod: one address, so other ports; and a folder in memory
// through which the two exchange tensors.
Json ColocatedServer(const ObjectKey& job,
                     const TrainingJobSpec& spec,
                     const MemberId& worker,
                     const PodSettings& settings,
                     Json& pod) {
  Json container = BaseContainer(JobRole::kServer, kColocatedMetricsPort);
  container["image"] = spec.servers.image.empty() ? settings.runtime_image : spec.servers.image;
  const pushpull::ServerId server =
      pushpull::ServerBeside(pushpull::WorkerId{static_cast<uint32_t>(worker.index)});
  FillServer(job, spec, server.value(), settings, container, pod);
  for (const std::string& word : {std::string("--weight"),
                                  std::string(kColocatedWeight),
                                  std::string("--metrics"),
                                  absl::StrCat("0.0.0.0:", kColocatedMetricsPort)}) {
    container["args"].push_back(word);
  }
  LayOverText(spec.servers.resources_json, container["resources"]);
  MountSharedMemory(container);
  return container;
}

// Where the other workers reach this one; the brackets are for IPv6 and harmless for IPv4.
void AddRing(const char* variable, Json& container) {
  container["env"].push_back(PodIp());
  container["env"].push_back(Variable(variable, absl::StrCat("[$(POD_IP)]:", kRingPort)));
  container["ports"].push_back(Port("ring", kRingPort));
}

// Where the other workers of its group reach this one, and by what the groups of hosts are formed.
void AddGroup(Json& container) {
  AddRing("PUSHPULL_GROUP", container);
  container["env"].push_back(FromPod("PUSHPULL_NODE", "spec.nodeName"));
}

// The user's program, in the user's image; docs/interfaces.md lists the variables that it needs.
void FillWorker(const ObjectKey& job,
                const TrainingJobSpec& spec,
                const MemberStart& start,
                const PodSettings& settings,
                Json& container) {
  if (!spec.command.empty()) container["command"] = spec.command;
  if (!spec.args.empty()) container["args"] = spec.args;
  Json& environment = container["env"];
  environment = Json::array();
  for (const pushpull::EnvVar& variable : spec.env) {
    Json entry = Variable(variable.name, variable.value);
    const std::optional<Json> source =
        variable.value_from_json.empty() ? std::nullopt : ParseJson(variable.value_from_json);
    if (source) entry = {{"name", variable.name}, {"valueFrom", *source}};
    environment.push_back(std::move(entry));
  }
  for (const auto& [name, value] :
       {std::pair<const char*, std::string>{"PUSHPULL_JOB", job.name},
        {"PUSHPULL_ROLE", "worker"},
        {"PUSHPULL_INDEX", absl::StrCat(start.member.index)},
        {"PUSHPULL_COORDINATOR", CoordinatorAddress(job)},
        {"PUSHPULL_METRICS_PORT", absl::StrCat(kMetricsPort)},
        {pushpull::kTerminationLogVariable, pushpull::kTerminationLogOfPods}}) {
    environment.push_back(Variable(name, value));
  }
  if (spec.sync.mode == pushpull::SyncMode::kAllReduce) AddRing("PUSHPULL_RING", container);
  if (spec.sync.local_reduce != pushpull::LocalReduce::kNone) AddGroup(container);
  // The user's value takes precedence.
  if (std::ranges::find(spec.env, kLogLevelVariable, &pushpull::EnvVar::name) == spec.env.end())
    environment.push_back(Variable(kLogLevelVariable, settings.log_level));
  if (spec.workers.gpus_per_worker > 0)
    container["resources"]["limits"]["nvidia.com/gpu"] = spec.workers.gpus_per_worker;
}

// A template may have put anything there.
Json& ObjectAt(const char* key, Json& parent) {
  Json& field = parent[key];
  if (!field.is_object()) field = Json::object();
  return field;
}

// A template cannot change fields that the operator relies on.
void SetIdentity(const ObjectMeta& owner,
                 const TrainingJobObject& job,
                 const MemberStart& start,
                 Json& pod) {
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  Json& metadata = ObjectAt("metadata", pod);
  const Json own = ChildMetadata(owner, PodName(owner.key.name, start.member));
  for (const char* key : {"name", "namespace", "ownerReferences"}) metadata[key] = own[key];
  Json& labels = ObjectAt("labels", metadata);
  for (const auto& [key, value] : MemberLabels(owner.key.name, start.member)) labels[key] = value;
  if (pod["spec"].is_object()) pod["spec"]["restartPolicy"] = "Never";
  if (start.member.role != JobRole::kCoordinator) return;
  labels[kTermLabel] = absl::StrCat(start.term);
  ObjectAt("annotations", metadata)[kManifestAnnotation] = job.manifest;
}

// A server or coordinator stops waiting before the kubelet kills it; the template may have changed
// the grace period.
void SetLeaveSeconds(Json& pod) {
  Json& spec = ObjectAt("spec", pod);
  const Json& grace = spec[kGraceField];
  if (!grace.is_number_integer() || !spec["containers"].is_array()) return;
  const int64_t seconds = std::max<int64_t>(grace.get<int64_t>(), 0);
  const int64_t leave = std::max(seconds - kGraceMargin, seconds / 2);
  for (Json& container : spec["containers"]) {
    if (!container.is_object() || !container.contains("name")) continue;
    const bool is_ours = container["name"] == std::string(ComponentOf(JobRole::kServer)) ||
                         container["name"] == std::string(ComponentOf(JobRole::kCoordinator));
    if (!is_ours || !container["env"].is_array()) continue;
    container["env"].push_back(Variable(kLeaveVariable, absl::StrCat(leave)));
  }
}

const std::string& TemplateOf(const TrainingJobSpec& spec, JobRole role) {
  if (role == JobRole::kServer) return spec.servers.template_json;
  return role == JobRole::kWorker ? spec.workers.template_json : spec.coordinator.template_json;
}

// spec.podDefaults as a template for every role.
Json DefaultTemplate(const pushpull::PodDefaults& defaults) {
  Json pod = Json::object();
  if (!defaults.labels.empty()) pod["metadata"]["labels"] = defaults.labels;
  if (!defaults.annotations.empty()) pod["metadata"]["annotations"] = defaults.annotations;
  if (!defaults.node_selector.empty()) pod["spec"]["nodeSelector"] = defaults.node_selector;
  if (!defaults.service_account_name.empty())
    pod["spec"]["serviceAccountName"] = defaults.service_account_name;
  for (const std::string& secret : defaults.image_pull_secrets)
    pod["spec"]["imagePullSecrets"].push_back({{"name", secret}});
  for (const std::string& text : defaults.tolerations_json) {
    if (const std::optional<Json> toleration = ParseJson(text))
      pod["spec"]["tolerations"].push_back(*toleration);
  }
  return pod;
}

Json MemberContainer(const ObjectKey& job,
                     const TrainingJobSpec& spec,
                     const MemberStart& start,
                     const PodSettings& settings,
                     Json& pod) {
  Json container = BaseContainer(start.member.role, kMetricsPort);
  const std::string& own = start.member.role == JobRole::kWorker ? spec.image : spec.servers.image;
  container["image"] = own.empty() ? settings.runtime_image : own;
  switch (start.member.role) {
    case JobRole::kCoordinator:
      FillCoordinator(spec, start, settings, container, pod);
      LayOverText(spec.coordinator.resources_json, container["resources"]);
      break;
    case JobRole::kServer:
      FillServer(job, spec, static_cast<uint32_t>(start.member.index), settings, container, pod);
      if (!spec.scheduling || spec.scheduling->spread_servers) SpreadServers(job.name, pod);
      LayOverText(spec.servers.resources_json, container["resources"]);
      break;
    case JobRole::kWorker:
      FillWorker(job, spec, start, settings, container);
      // Without servers, workers write checkpoints.
      if (spec.sync.mode == pushpull::SyncMode::kAllReduce) MountCheckpoints(spec, container, pod);
      LayOverText(spec.workers.resources_json, container["resources"]);
      break;
  }
  return container;
}

// The member's own container first.
Json Containers(const ObjectKey& job,
                const TrainingJobSpec& spec,
                const MemberStart& start,
                const PodSettings& settings,
                Json& pod) {
  Json containers = Json::array({MemberContainer(job, spec, start, settings, pod)});
  if (start.member.role == JobRole::kWorker && spec.workers.colocated_server) {
    pod["volumes"].push_back({{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}});
    MountSharedMemory(containers.front());
    containers.push_back(ColocatedServer(job, spec, start.member, settings, pod));
  }
  MountTlsSecret(job.name, spec.security, CertificateMembers(spec, start.member), containers, pod);
  return containers;
}

}  // namespace

std::string MemberPodText(const ObjectMeta& owner,
                          const TrainingJobObject& job,
                          const MemberStart& start,
                          const PodSettings& settings) {
  const TrainingJobSpec& spec = job.job.spec;
  Json pod{{"spec", BasePodSpec(spec, settings)}};
  pod["spec"]["containers"] = Containers(owner.key, spec, start, settings, pod["spec"]);
  LayOver(DefaultTemplate(spec.pod_defaults), pod);
  LayOverText(TemplateOf(spec, start.member.role), pod);
  SetLeaveSeconds(pod);
  SetIdentity(owner, job, start, pod);
  return ToText(pod);
}

std::string LabelsPatchText(const std::string& uid,
                            const std::map<std::string, std::string>& labels) {
  return ToText({{"metadata", {{"uid", uid}, {"labels", labels}}}});
}

}  // namespace pushpull_operator
