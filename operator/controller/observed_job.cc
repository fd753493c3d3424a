// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/observed_job.h"

#include <algorithm>

#include "operator/api/member.h"
#include "operator/children/tls_secret.h"

namespace pushpull_operator {

std::string PodIndex(const ObjectMeta& pod) {
  const auto job = pod.labels.find(kJobLabel);
  if (job == pod.labels.end()) return "";
  return ToString(ObjectKey{.object_namespace = pod.key.object_namespace, .name = job->second});
}

const Stored<Pod>* ObservedJob::Coordinator() const {
  const std::string name = PodName(key().name, {});
  for (const PodStore::Pointer& pod : pods) {
    const bool is_it = pod->meta.key.name == name && pod->meta.controller_uid == meta().uid;
    if (is_it && pod->value.is_ready && !pod->value.ip.empty() && !pod->meta.is_deleting)
      return pod.get();
  }
  return nullptr;
}

bool ObservedJob::HasPods() const {
  return std::any_of(pods.begin(), pods.end(), [&](const PodStore::Pointer& pod) {
    return pod->meta.controller_uid == meta().uid;
  });
}

std::string ObservedJob::Secret() const {
  return TlsSecretName(key().name, object().job.spec.security);
}

}  // namespace pushpull_operator
