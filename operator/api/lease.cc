// SPDX-License-Identifier: Apache-2.0
#include "operator/api/lease.h"

#include "absl/time/time.h"

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

// Longer than any lease whose holder intends to renew it.
constexpr int64_t kDurationMax = 3600;

void SetRecord(const LeaseRecord& record, Json& object) {
  Json& spec = object["spec"];
  spec["holderIdentity"] = record.holder;
  spec["leaseDurationSeconds"] = record.duration.count();
  spec["acquireTime"] = record.acquire_time;
  spec["renewTime"] = record.renew_time;
  spec["leaseTransitions"] = record.transitions;
}

}  // namespace

absl::StatusOr<LeaseRecord> DecodeLease(const Object& object) {
  LeaseRecord record;
  const Json* spec = Find(*object.json, "spec");
  if (spec == nullptr || spec->is_null()) return record;
  if (!spec->is_object()) return absl::DataLossError("the lease's spec is no object");
  record.holder = StringField(*spec, "holderIdentity");
  const int64_t seconds = IntField(*spec, "leaseDurationSeconds").value_or(0);
  if (seconds > 0 && seconds <= kDurationMax) record.duration = std::chrono::seconds(seconds);
  record.acquire_time = StringField(*spec, "acquireTime");
  record.renew_time = StringField(*spec, "renewTime");
  record.transitions = IntField(*spec, "leaseTransitions").value_or(0);
  return record;
}

std::string NewLeaseText(const ObjectKey& key, const LeaseRecord& record) {
  Json object{{"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}};
  object["metadata"]["name"] = key.name;
  object["metadata"]["namespace"] = key.object_namespace;
  SetRecord(record, object);
  return ToText(object);
}

std::string ChangedLeaseText(const Object& object, const LeaseRecord& record) {
  Json changed = *object.json;
  SetRecord(record, changed);
  return ToText(changed);
}

std::string MicroTimeText(std::chrono::system_clock::time_point time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", absl::FromChrono(time), absl::UTCTimeZone());
}

}  // namespace pushpull_operator
