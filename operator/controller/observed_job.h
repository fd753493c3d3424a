// SPDX-License-Identifier: Apache-2.0
//
// One job as the caches show it at the start of a reconcile.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "operator/api/member.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/training_runtime.h"
#include "operator/cache/store.h"
#include "operator/children/tls_secret.h"

namespace pushpull_operator {

// Jobs and their pods as the API server has them. Pods are indexed by JobOf.
using JobStore = Store<TrainingJobObject>;
using PodStore = Store<Pod>;
using RuntimeStore = Store<TrainingRuntime>;

struct ObservedJob {
  const Stored<TrainingJobObject>& stored;
  RuntimeStore::Pointer runtime;        // that it names; null: there is none, or it names none
  std::vector<PodStore::Pointer> pods;  // with the job's label, whoever owns them
  WallTime now;                         // of the API server

  const ObjectMeta& meta() const { return stored.meta; }
  const ObjectKey& key() const { return stored.meta.key; }
  const TrainingJobObject& object() const { return stored.value; }
  // The pod of its coordinator; null while the coordinator cannot be reached.
  const Stored<Pod>* Coordinator() const {
    const std::string name = PodName(key().name, {});
    for (const PodStore::Pointer& pod : pods) {
      const bool is_it = pod->meta.key.name == name && pod->meta.controller_uid == meta().uid;
      if (is_it && pod->value.is_ready && !pod->value.ip.empty() && !pod->meta.is_deleting)
        return pod.get();
    }
    return nullptr;
  }
  bool HasPods() const {
    return std::any_of(pods.begin(), pods.end(), [&](const PodStore::Pointer& pod) {
      return pod->meta.controller_uid == meta().uid;
    });
  }
  // Name of the Secret with the certificates of its members; empty: no TLS.
  std::string Secret() const { return TlsSecretName(key().name, object().job.spec.security); }
};

}  // namespace pushpull_operator
