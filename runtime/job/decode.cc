// SPDX-License-Identifier: Apache-2.0
//
// Every field of the manifest; see decode.h.
#include "runtime/job/decode.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "runtime/job/object_reader.h"

namespace pushpull {

namespace {

constexpr IntRange kAnyCount{0, std::numeric_limits<int>::max()};
constexpr IntRange kAnySeconds{0, std::numeric_limits<int>::max()};
constexpr IntRange kPositiveSeconds{1, std::numeric_limits<int>::max()};
constexpr size_t kRestartRulesMax = 16;
constexpr size_t kEnvVarsMax = 1000;
constexpr size_t kWordsMax = 1000;     // of a command
constexpr size_t kExitCodesMax = 255;  // as many as exist
constexpr size_t kPullSecretsMax = 32;
constexpr size_t kTolerationsMax = 64;
constexpr size_t kContainersMax = 64;

void ReadMetadata(ObjectReader& object, JobMetadata& metadata) {
  object.Require("name");
  object.ReadString("name", metadata.name);
  object.ReadString("namespace", metadata.namespace_name);
  object.ReadStringMap("labels", metadata.labels);
  object.ReadStringMap("annotations", metadata.annotations);
  // Printed by `kubectl get -o yaml`.
  for (const absl::string_view key : {"creationTimestamp",
                                      "deletionGracePeriodSeconds",
                                      "deletionTimestamp",
                                      "finalizers",
                                      "generateName",
                                      "generation",
                                      "managedFields",
                                      "ownerReferences",
                                      "resourceVersion",
                                      "selfLink",
                                      "uid"}) {
    object.Skip(key);
  }
}

bool IsReservedVariable(absl::string_view name) {
  return absl::StartsWith(name, kVariablePrefix) && !absl::c_linear_search(kVariablesOfUsers, name);
}

void ReadVariableName(ObjectReader& object, std::string& name) {
  if (object.ReadString("name", name) && IsReservedVariable(name)) {
    object.Refuse("name",
                  absl::StrCat(Quoted(name),
                               " is not yours to set; of those with PUSHPULL_ only ",
                               absl::StrJoin(kVariablesOfUsers, ", "),
                               " are"));
  }
}

void ReadEnvVar(ObjectReader& object, EnvVar& variable) {
  object.Require("name");
  ReadVariableName(object, variable.name);
  object.ReadString("value", variable.value);
  object.ReadJson("valueFrom", variable.value_from_json);
}

void ReadLabels(ObjectReader& object, std::map<std::string, std::string>& labels) {
  if (!object.ReadStringMap("labels", labels)) return;
  object.ReadObject("labels", [](ObjectReader& part) {
    part.AllowUnknown();
    for (const char* key : kReservedLabels)
      part.Refuse(key, "is set by the operator; use a key of your own");
  });
}

void ReadContainer(ObjectReader& container) {
  container.AllowUnknown();
  container.ReadObjects("env", kEnvVarsMax, [](ObjectReader& variable) {
    variable.AllowUnknown();
    std::string name;
    ReadVariableName(variable, name);
  });
}

// In a template, only fields that users may not set are checked.
void ReadTemplate(ObjectReader& object, std::string& json) {
  if (!object.ReadJson("template", json)) return;
  object.ReadObject("template", [](ObjectReader& pod) {
    pod.AllowUnknown();
    pod.ReadObject("spec", [](ObjectReader& spec) {
      spec.AllowUnknown();
      PodRestartPolicy policy{};
      spec.ReadEnum("restartPolicy", policy);
      spec.ReadObjects("containers", kContainersMax, ReadContainer);
    });
    pod.ReadObject("metadata", [](ObjectReader& metadata) {
      metadata.AllowUnknown();
      std::map<std::string, std::string> labels;
      ReadLabels(metadata, labels);
    });
  });
}

void ReadServers(ObjectReader& object, ServersSpec& servers) {
  object.ReadInt("replicas", {0, 1024}, servers.replicas);
  object.ReadInt("minReplicas", {1, 1024}, servers.min_replicas);
  object.ReadInt("maxReplicas", {1, 1024}, servers.max_replicas);
  object.ReadInt("replication", {0, 2}, servers.replication);
  object.ReadInt("threads", {1, 64}, servers.threads);
  object.ReadSeconds("lossGraceSeconds", kAnySeconds, servers.loss_grace);
  object.ReadString("image", servers.image);
  object.ReadJson("resources", servers.resources_json);
  ReadTemplate(object, servers.template_json);
}

void ReadWorkers(ObjectReader& object, WorkersSpec& workers) {
  object.ReadInt("replicas", {1, 4096}, workers.replicas);
  object.ReadInt("minReplicas", {1, 4096}, workers.min_replicas);
  object.ReadInt("maxReplicas", {1, 4096}, workers.max_replicas);
  object.ReadInt("gpusPerWorker", {0, 64}, workers.gpus_per_worker);
  object.ReadInt("globalBatch", {1, std::numeric_limits<int>::max()}, workers.global_batch);
  object.ReadBool("colocatedServer", workers.colocated_server);
  object.ReadString("topologyKey", workers.topology_key);
  object.ReadJson("resources", workers.resources_json);
  ReadTemplate(object, workers.template_json);
}

void ReadCoordinator(ObjectReader& object, CoordinatorSpec& coordinator) {
  object.ReadJson("resources", coordinator.resources_json);
  ReadTemplate(object, coordinator.template_json);
}

void ReadPodDefaults(ObjectReader& object, PodDefaults& defaults) {
  object.ReadObjects("imagePullSecrets", kPullSecretsMax, [&defaults](ObjectReader& secret) {
    secret.Require("name");
    secret.ReadString("name", defaults.image_pull_secrets.emplace_back());
  });
  object.ReadString("serviceAccountName", defaults.service_account_name);
  object.ReadJsons("tolerations", kTolerationsMax, defaults.tolerations_json);
  object.ReadStringMap("nodeSelector", defaults.node_selector);
  ReadLabels(object, defaults.labels);
  object.ReadStringMap("annotations", defaults.annotations);
}

void ReadSync(ObjectReader& object, SyncSpec& sync) {
  object.ReadEnum("mode", sync.mode);
  object.ReadInt("staleness", kAnyCount, sync.staleness);
  object.ReadInt("backupWorkers", {0, 4095}, sync.backup_workers);
  object.ReadBool("deterministic", sync.deterministic);
  object.ReadBool("scaleByStaleness", sync.scale_by_staleness);
  object.ReadBool("gated", sync.gated);
  object.ReadEnum("localReduce", sync.local_reduce);
  object.ReadBool("noiseScale", sync.noise_scale);
  object.ReadEnum("nonFinite", sync.non_finite);
  object.ReadSeconds("stallSeconds", {1, 3600}, sync.stall);
  object.ReadEnum("onStall", sync.on_stall);
}

void ReadCheckpoint(ObjectReader& object, CheckpointSpec& checkpoint) {
  object.ReadString("claim", checkpoint.claim);
  object.ReadString("uri", checkpoint.uri);
  object.ReadString("path", checkpoint.path);
  object.ReadSeconds("everySeconds", kPositiveSeconds, checkpoint.every);
  object.ReadInt("keep", {1, 1000}, checkpoint.keep);
  object.ReadString("restoreFrom", checkpoint.restore_from);
  object.ReadEnum("restore", checkpoint.restore);
}

void ReadScaling(ObjectReader& object, ScalingSpec& scaling) {
  object.ReadSeconds("drainTimeoutSeconds", kAnySeconds, scaling.drain_timeout);
  object.ReadEnum("onDrainTimeout", scaling.on_drain_timeout);
  object.ReadSeconds("cooldownSeconds", kAnySeconds, scaling.cooldown);
}

void ReadRestartRule(ObjectReader& object, RestartRule& rule) {
  object.ReadEnum("role", rule.role);
  object.ReadObject("exitCodes", [&rule](ObjectReader& codes) {
    rule.exit_codes.emplace();
    codes.ReadInts("in", kExitCodesMax, {1, 255}, rule.exit_codes->in);
    codes.ReadInts("notIn", kExitCodesMax, {1, 255}, rule.exit_codes->not_in);
  });
  object.ReadEnum("reason", rule.reason);
  object.Require("action");
  object.ReadEnum("action", rule.action);
}

void ReadRestart(ObjectReader& object, RestartSpec& restart) {
  object.ReadInt("backoffLimit", kAnyCount, restart.backoff_limit);
  object.ReadObject("roleLimits", [&restart](ObjectReader& limits) {
    limits.ReadInt("servers", kAnyCount, restart.role_limits.servers);
    limits.ReadInt("workers", kAnyCount, restart.role_limits.workers);
    limits.ReadInt("coordinator", kAnyCount, restart.role_limits.coordinator);
  });
  object.ReadSeconds("initialDelaySeconds", kAnySeconds, restart.initial_delay);
  object.ReadSeconds("maxDelaySeconds", kAnySeconds, restart.max_delay);
  object.ReadSeconds("healthyAfterSeconds", kPositiveSeconds, restart.healthy_after);
  object.ReadObjects("rules", kRestartRulesMax, [&restart](ObjectReader& rule) {
    ReadRestartRule(rule, restart.rules.emplace_back());
  });
  object.ReadEnum("successPolicy", restart.success_policy);
  object.ReadSeconds("nodeLostAfterSeconds", kPositiveSeconds, restart.node_lost_after);
  object.ReadSeconds("peerTimeoutSeconds", {1, 3600}, restart.peer_timeout);
}

void ReadScheduling(ObjectReader& object, SchedulingSpec& scheduling) {
  // Fields of earlier releases that never had an effect.
  object.Refuse("gang",
                "is not supported: pods are scheduled one by one; remove it, and set "
                "spec.startDeadlineSeconds to fail a job whose pods do not all fit");
  object.Refuse("queue",
                "is not supported; remove it, and let the queue admit the job by spec.suspend or "
                "spec.managedBy");
  object.ReadString("priorityClass", scheduling.priority_class);
  object.ReadBool("spreadServers", scheduling.spread_servers);
  object.ReadBool("pdb", scheduling.pdb);
}

void ReadSecurity(ObjectReader& object, SecuritySpec& security) {
  object.ReadEnum("tls", security.tls);
  object.ReadString("secretName", security.secret_name);
  object.ReadEnum("networkPolicy", security.network_policy);
}

// The objects of the spec that always exist, with their defaults.
void ReadParts(ObjectReader& object, TrainingJobSpec& spec) {
  object.ReadObjects("env", kEnvVarsMax, [&spec](ObjectReader& variable) {
    ReadEnvVar(variable, spec.env.emplace_back());
  });
  object.ReadObject("servers", [&spec](ObjectReader& part) { ReadServers(part, spec.servers); });
  object.ReadObject("workers", [&spec](ObjectReader& part) { ReadWorkers(part, spec.workers); });
  object.ReadObject("coordinator",
                    [&spec](ObjectReader& part) { ReadCoordinator(part, spec.coordinator); });
  object.ReadObject("podDefaults",
                    [&spec](ObjectReader& part) { ReadPodDefaults(part, spec.pod_defaults); });
  object.ReadObject("sync", [&spec](ObjectReader& part) { ReadSync(part, spec.sync); });
  object.ReadObject("scaling", [&spec](ObjectReader& part) { ReadScaling(part, spec.scaling); });
  object.ReadObject("restart", [&spec](ObjectReader& part) { ReadRestart(part, spec.restart); });
  object.ReadObject("security", [&spec](ObjectReader& part) { ReadSecurity(part, spec.security); });
}

// What both a job and a runtime can set.
void ReadSharedSpec(ObjectReader& object, TrainingJobSpec& spec) {
  object.ReadString("image", spec.image);
  object.ReadStrings("command", kWordsMax, spec.command);
  object.ReadStrings("args", kWordsMax, spec.args);
  ReadParts(object, spec);
  object.ReadObject("checkpoint", [&spec](ObjectReader& part) {
    ReadCheckpoint(part, spec.checkpoint.emplace());
  });
  object.ReadSeconds("startDeadlineSeconds", kPositiveSeconds, spec.start_deadline);
  object.ReadSeconds("activeDeadlineSeconds", kPositiveSeconds, spec.active_deadline);
  object.ReadSeconds("ttlAfterFinishedSeconds", kAnySeconds, spec.ttl_after_finished);
  object.ReadEnum("cleanup", spec.cleanup);
  object.ReadObject("scheduling", [&spec](ObjectReader& part) {
    ReadScheduling(part, spec.scheduling.emplace());
  });
}

void ReadJobSpec(ObjectReader& object, TrainingJobSpec& spec) {
  object.ReadObject("runtimeRef", [&spec](ObjectReader& reference) {
    reference.Require("name");
    if (reference.ReadString("name", spec.runtime_ref) && spec.runtime_ref.empty())
      reference.Refuse("name", "must be the name of a TrainingRuntime, is \"\"");
  });
  ReadSharedSpec(object, spec);
  object.ReadBool("suspend", spec.suspend);
  object.ReadString("managedBy", spec.managed_by);
}

void ReadRuntimeSpec(ObjectReader& object, TrainingJobSpec& spec) {
  for (const char* key : {"runtimeRef", "suspend", "managedBy"})
    object.Refuse(key, "is about one job; set it in the TrainingJob");
  ReadSharedSpec(object, spec);
}

TrainingJob Decode(const Tree& tree,
                   absl::string_view kind,
                   void (*read_spec)(ObjectReader&, TrainingJobSpec&),
                   Problems& problems) {
  TrainingJob job;
  if (tree.kind == Tree::Kind::kNull) {
    problems.Add("", "is empty");
    return job;
  }
  ObjectReader root(tree, "", problems);
  if (tree.kind != Tree::Kind::kObject) return job;
  root.ReadConstant("apiVersion", kTrainingJobApiVersion);
  root.ReadConstant("kind", kind);
  root.Require("metadata");
  root.ReadObject("metadata", [&job](ObjectReader& object) { ReadMetadata(object, job.metadata); });
  root.Require("spec");
  root.ReadObject("spec", [&](ObjectReader& object) { read_spec(object, job.spec); });
  root.Skip("status");
  return job;
}

}  // namespace

TrainingJob DecodeTrainingJob(const Tree& tree, Problems& problems) {
  return Decode(tree, kTrainingJobKind, ReadJobSpec, problems);
}

TrainingJob DecodeTrainingRuntime(const Tree& tree, Problems& problems) {
  return Decode(tree, kTrainingRuntimeKind, ReadRuntimeSpec, problems);
}

}  // namespace pushpull
