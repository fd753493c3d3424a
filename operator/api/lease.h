// SPDX-License-Identifier: Apache-2.0
//
// A coordination.k8s.io/v1 Lease: the leader and its last renewal. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "operator/kube/object.h"

namespace pushpull_operator {

inline const ResourceType& LeaseType() {
  static const ResourceType type{
      .group = "coordination.k8s.io", .version = "v1", .plural = "leases"};
  return type;
}

struct LeaseRecord {
  std::string holder;  // empty: nobody
  std::chrono::seconds duration{0};
  std::string acquire_time;  // as the API server returns it; compared, never computed with
  std::string renew_time;
  int64_t transitions = 0;
  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

// Fields that are missing or of another type are empty. kDataLoss: the spec is not an object.
absl::StatusOr<LeaseRecord> DecodeLease(const Object& object);

// A new object's text.
std::string NewLeaseText(const ObjectKey& key, const LeaseRecord& record);

// The object's text with the record in it and everything else unchanged; writing it fails unless
// the object still has the version that was read.
std::string ChangedLeaseText(const Object& object, const LeaseRecord& record);

// "2026-01-31T12:00:00.000000Z", the form of a MicroTime.
std::string MicroTimeText(std::chrono::system_clock::time_point time);

}  // namespace pushpull_operator
