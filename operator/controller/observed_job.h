// SPDX-License-Identifier: Apache-2.0
//
// One job as the caches show it at the start of a reconcile.
#pragma once

#include <string>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/cache/store.h"

namespace pushpull_operator {

// Jobs and their pods as the API server has them. Pods are indexed by PodIndex.
using JobStore = Store<TrainingJobObject>;
using PodStore = Store<Pod>;

// "default/mnist" for a pod of that job; empty for other pods.
std::string PodIndex(const ObjectMeta& pod);

struct ObservedJob {
  const Stored<TrainingJobObject>& stored;
  std::vector<PodStore::Pointer> pods;  // with the job's label, whoever owns them
  WallTime now;                         // of the API server

  const ObjectMeta& meta() const { return stored.meta; }
  const ObjectKey& key() const { return stored.meta.key; }
  const TrainingJobObject& object() const { return stored.value; }
  // The pod of its coordinator; null while nobody can talk to it.
  const Stored<Pod>* Coordinator() const;
  bool HasPods() const;
  // Name of the Secret with the certificates of its members; empty: no TLS.
  std::string Secret() const;
};

}  // namespace pushpull_operator
