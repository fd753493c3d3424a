// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job.h"

#include <optional>

#include "operator/kube/json_fields.h"
#include "runtime/job/decode.h"
#include "runtime/job/training_runtime.h"
#include "runtime/job/tree.h"
#include "runtime/job/validate.h"

namespace pushpull_operator {

using pushpull::MakeTree;
using pushpull::Tree;

namespace {

Tree NumberTree(const Json& json) {
  const std::optional<int64_t> integer = ToInt(json);
  Tree tree = MakeTree(integer ? Tree::Kind::kInteger : Tree::Kind::kNumber, ToText(json));
  if (integer) {
    tree.integer = *integer;
  } else {
    tree.number = json.get<double>();
  }
  return tree;
}

// JSON as the tree that the codec of the manifest reads; a number that is not a 64-bit integer
// becomes a Kind::kNumber. Recursive: only for JSON from ParseJson, which bounds the depth.
Tree ToTree(const Json& json) {
  if (json.is_number()) return NumberTree(json);
  if (json.is_string()) return MakeTree(Tree::Kind::kString, json.get<std::string>());
  Tree tree;
  if (json.is_boolean()) {
    tree = MakeTree(Tree::Kind::kBool, ToText(json));
    tree.boolean = json.get<bool>();
  } else if (json.is_array()) {
    tree = MakeTree(Tree::Kind::kList);
    for (const Json& item : json) tree.items.push_back(ToTree(item));
  } else if (json.is_object()) {
    tree = MakeTree(Tree::Kind::kObject);
    for (const auto& [key, value] : json.items()) tree.fields.push_back({key, ToTree(value)});
  }
  return tree;
}

// The part of a manifest's metadata that matters here. The API server's own part grows with its
// versions, and last-applied-configuration is as long as the rest of the object.
Json ManifestMetadata(const Json& metadata) {
  Json kept = Json::object();
  for (const char* key : {"name", "namespace", "labels"}) {
    if (const Json* field = Find(metadata, key)) kept[key] = *field;
  }
  return kept;
}

Json Manifest(const Json& object) {
  Json manifest = Json::object();
  // The objects of a list need not carry these two.
  manifest["apiVersion"] = pushpull::kTrainingJobApiVersion;
  manifest["kind"] = pushpull::kTrainingJobKind;
  if (const Json* metadata = Find(object, "metadata")) {
    manifest["metadata"] = ManifestMetadata(*metadata);
  }
  if (const Json* spec = Find(object, "spec")) manifest["spec"] = *spec;
  return manifest;
}

// The counterpart of LocalProblems: a coordinator's pod mounts no volume but the claim's.
void CheckForPods(const pushpull::TrainingJobSpec& spec, pushpull::Problems& problems) {
  constexpr char kUri[] = "spec.checkpoint.uri";
  const bool has_only_uri =
      spec.checkpoint && spec.checkpoint->claim.empty() && !spec.checkpoint->uri.empty();
  if (has_only_uri && !problems.Covers(kUri))
    problems.Add(kUri, "is for `pushpull run`; use spec.checkpoint.claim on Kubernetes");
}

bool StatesSize(const Json& object) {
  const Json& spec = ObjectField(object, "spec");
  return Find(ObjectField(spec, "servers"), "replicas") != nullptr &&
         Find(ObjectField(spec, "workers"), "replicas") != nullptr;
}

// Decodes the manifest of a job that is merged with its runtime, or has none.
void DecodeWhole(const Tree& manifest, TrainingJobObject& decoded) {
  pushpull::Problems problems;
  decoded.job = pushpull::DecodeTrainingJob(manifest, problems);
  pushpull::CheckRules(decoded.job, problems);
  CheckForPods(decoded.job.spec, problems);
  decoded.problems = problems.Take();
}

}  // namespace

TrainingJobObject DecodeTrainingJobObject(const Object& object) {
  TrainingJobObject decoded;
  decoded.status = DecodeStatus(*object.json);
  if (!object.problem.empty()) {
    decoded.unreadable = object.problem;
    decoded.job.spec.managed_by = StringField(ObjectField(*object.json, "spec"), "managedBy");
    return decoded;
  }
  const Json json = Manifest(*object.json);
  const Tree manifest = ToTree(json);
  decoded.manifest = ToText(json);
  decoded.states_size = StatesSize(json);
  decoded.runtime = StringField(ObjectField(ObjectField(json, "spec"), "runtimeRef"), "name");
  if (decoded.runtime.empty()) {
    DecodeWhole(manifest, decoded);
  } else if (HasRuntime(decoded)) {
    const Tree runtime = ToTree(ParseJson(decoded.status.runtime->spec).value_or(Json::object()));
    const Tree merged = pushpull::MergeRuntime(runtime, manifest);
    decoded.manifest = pushpull::ToJson(merged);
    DecodeWhole(merged, decoded);
    pushpull::NameRuntime(decoded.runtime, runtime, manifest, decoded.problems);
  } else {
    pushpull::Problems problems;
    decoded.job = pushpull::DecodeTrainingJob(manifest, problems);
    pushpull::CheckRulesBeforeMerge(decoded.job, manifest, problems);
    decoded.problems = problems.Take();
  }
  return decoded;
}

bool HasRuntime(const TrainingJobObject& object) {
  return object.status.runtime && object.status.runtime->name == object.runtime;
}

std::string ReplicasPatchText(const pushpull::TrainingJobSpec& spec,
                              const std::string& resource_version) {
  return ToText({{"metadata", {{"resourceVersion", resource_version}}},
                 {"spec",
                  {{"servers", {{"replicas", spec.servers.replicas}}},
                   {"workers", {{"replicas", spec.workers.replicas}}}}}});
}

}  // namespace pushpull_operator
