// SPDX-License-Identifier: Apache-2.0
//
// What the API server has of the objects of jobs beside their pods, by metadata alone: Services,
// NetworkPolicies and PodDisruptionBudgets, which are watched, and Secrets, which the operator may
// neither list nor watch: each is looked up by its name (secret_poll.h).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "operator/cache/store.h"
#include "operator/kube/object.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

using ChildStore = Store<std::monostate>;

// The job of this key ("default/mnist"), one of its pods or of its other objects has changed.
// Called on the threads that watch; must not block.
using OnJobChange = std::function<void(const std::string& job)>;

// Changes whenever somebody changes what the operator has written in the object: by its generation
// where the kind has one, because the status of others changes the resource version.
std::string VersionOf(const ObjectMeta& meta);

// Thread-safe; each store has one writer.
class ChildCache {
 public:
  explicit ChildCache(OnJobChange on_change);

  // Of one of WatchedChildren.
  ChildStore& StoreOf(const ResourceType& type) { return stores_.at(type.plural); }
  // Of a Secret as it was just read or written; empty: there is none. Tells nobody.
  void SetSecret(const ObjectKey& secret, const std::string& version) ABSL_LOCKS_EXCLUDED(mu_);
  // Likewise, of job `job`, which is told of a change.
  void OnSecretSeen(const ObjectKey& secret, const std::string& version, const std::string& job)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets all others.
  void RetainSecrets(const std::set<ObjectKey>& secrets) ABSL_LOCKS_EXCLUDED(mu_);

  // VersionOf the object; empty: there is none. Nothing: not known, of a Secret that nobody has
  // looked up.
  std::optional<std::string> Find(const ResourceType& type, const ObjectKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status AwaitSynced(pushpull::Deadline deadline) const;

 private:
  const OnJobChange on_change_;
  std::map<std::string, ChildStore> stores_;  // by plural; all are there from the beginning

  mutable pushpull::Mutex mu_;
  std::map<ObjectKey, std::string> secrets_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
