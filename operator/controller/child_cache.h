// SPDX-License-Identifier: Apache-2.0
//
// The objects of jobs other than pods as the API server has them, metadata only: Services,
// NetworkPolicies and PodDisruptionBudgets, which are watched, and Secrets, which the operator may
// neither list nor watch and looks up by name (secret_poll.h).
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

// The job with this key ("default/mnist"), one of its pods or one of its other objects has changed.
// Called on the watching threads; must not block.
using OnJobChange = std::function<void(const std::string& job)>;

// A text that changes whenever somebody changes what the operator wrote in the object. Based on the
// generation if the kind has one, because others' status updates change the resource version.
std::string VersionOf(const ObjectMeta& meta);

// Thread-safe; each store has one writer.
class ChildCache {
 public:
  explicit ChildCache(OnJobChange on_change);

  // `type` is one of WatchedChildren.
  ChildStore& StoreOf(const ResourceType& type) { return stores_.at(type.plural); }
  // Sets the version of a Secret just read or written; empty: there is none. Notifies nobody.
  void SetSecret(const ObjectKey& secret, const std::string& version) ABSL_LOCKS_EXCLUDED(mu_);
  // Likewise; `job`, whose Secret it is, is notified of a change.
  void OnSecretSeen(const ObjectKey& secret, const std::string& version, const std::string& job)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets all other Secrets.
  void RetainSecrets(const std::set<ObjectKey>& secrets) ABSL_LOCKS_EXCLUDED(mu_);

  // VersionOf the object; empty: there is none. Nothing: unknown, for a Secret not looked up yet.
  std::optional<std::string> Find(const ResourceType& type, const ObjectKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status AwaitSynced(pushpull::Deadline deadline) const;

 private:
  const OnJobChange on_change_;
  std::map<std::string, ChildStore> stores_;  // by plural; complete from the beginning

  mutable pushpull::Mutex mu_;
  std::map<ObjectKey, std::string> secrets_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
