// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/expectations.h"

namespace pushpull_operator {

void Expectations::ExpectUpdate(const std::string& replaced, WallTime now) {
  replaced_version_ = replaced;
  expires_at_ = now + kTimeout;
}

void Expectations::ExpectPod(const ObjectMeta& created, WallTime now) {
  created_pods_[created.key.name] = created.uid;
  expires_at_ = now + kTimeout;
}

bool Expectations::AreMet(const ObservedJob& job) {
  for (const PodStore::Pointer& pod : job.pods) {
    const auto created = created_pods_.find(pod->meta.key.name);
    if (created != created_pods_.end() && created->second == pod->meta.uid)
      created_pods_.erase(created);
  }
  if (job.now >= expires_at_) {
    created_pods_.clear();
    replaced_version_.clear();
  }
  return created_pods_.empty() && job.meta().resource_version != replaced_version_;
}

}  // namespace pushpull_operator
