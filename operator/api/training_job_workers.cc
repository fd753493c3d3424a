// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job_workers.h"

#include <cstdint>
#include <utility>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

// The schema's bounds are far below; anything else is as good as missing.
int ReplicasField(const Json& json, const char* key) {
  constexpr int64_t kMax = 1'000'000;
  const int64_t value = IntField(json, key).value_or(0);
  return value >= 0 && value <= kMax ? static_cast<int>(value) : 0;
}

std::string PatchText(const char* part, Json fields, const std::string& resource_version) {
  return ToText({{"metadata", {{"resourceVersion", resource_version}}}, {part, std::move(fields)}});
}

}  // namespace

TrainingJobWorkers DecodeTrainingJobWorkers(const Object& object) {
  const Json& spec = ObjectField(*object.json, "spec");
  const Json& status = ObjectField(*object.json, "status");
  TrainingJobWorkers workers{.size = {.replicas = ReplicasField(spec, "replicas"),
                                      .min_replicas = ReplicasField(spec, "minReplicas"),
                                      .max_replicas = ReplicasField(spec, "maxReplicas")},
                             .status = {.replicas = ReplicasField(status, "replicas"),
                                        .selector = StringField(status, "selector")}};
  const Json* finished = Find(status, "finished");
  workers.status.is_finished = finished != nullptr && *finished == Json(true);
  if (IntField(status, "agreedReplicas"))
    workers.status.agreed_replicas = ReplicasField(status, "agreedReplicas");
  return workers;
}

std::string SizePatchText(const WorkersSize& size, const std::string& resource_version) {
  return PatchText("spec",
                   {{"replicas", size.replicas},
                    {"minReplicas", size.min_replicas},
                    {"maxReplicas", size.max_replicas}},
                   resource_version);
}

std::string ScaleStatusPatchText(const WorkersScaleStatus& status,
                                 const std::string& resource_version) {
  Json fields{{"replicas", status.replicas},
              {"selector", status.selector},
              {"finished", status.is_finished}};
  if (status.agreed_replicas) fields["agreedReplicas"] = *status.agreed_replicas;
  return PatchText("status", std::move(fields), resource_version);
}

std::string WorkerReplicasPatchText(int replicas, const std::string& resource_version) {
  return PatchText("spec", {{"workers", {{"replicas", replicas}}}}, resource_version);
}

}  // namespace pushpull_operator
