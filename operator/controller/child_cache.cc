// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/child_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "operator/api/member.h"
#include "operator/children/job_objects.h"
#include "operator/children/tls_secret.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using pushpull::MutexLock;

namespace {

StoreOptions<std::monostate> OptionsFor(const OnJobChange& on_change) {
  return {.decode = [](const Object&) { return std::monostate{}; },
          .index = nullptr,
          .on_change =
              [on_change](const auto* old, const auto* now) {
                for (const auto* meta : {old, now}) {
                  const std::string job = meta == nullptr ? "" : JobOf(meta->meta);
                  if (!job.empty()) on_change(job);
                }
              }};
}

}  // namespace

std::string VersionOf(const ObjectMeta& meta) {
  const std::string version =
      meta.generation > 0 ? absl::StrCat("g", meta.generation) : meta.resource_version;
  return absl::StrCat(meta.uid,
                      " ",
                      version,
                      " ",
                      meta.controller_uid,
                      " ",
                      absl::StrJoin(meta.labels, ",", absl::PairFormatter("=")));
}

ChildCache::ChildCache(OnJobChange on_change) : on_change_(std::move(on_change)) {
  for (const ResourceType& type : WatchedChildren())
    stores_.try_emplace(type.plural, OptionsFor(on_change_));
}

void ChildCache::SetSecret(const ObjectKey& secret, const std::string& version) {
  MutexLock lock(mu_);
  secrets_[secret] = version;
}

void ChildCache::OnSecretSeen(const ObjectKey& secret,
                              const std::string& version,
                              const std::string& job) {
  {
    MutexLock lock(mu_);
    const auto [known, is_new] = secrets_.try_emplace(secret, version);
    if (!is_new && std::exchange(known->second, version) == version) return;
  }
  on_change_(job);
}

void ChildCache::RetainSecrets(const std::set<ObjectKey>& secrets) {
  MutexLock lock(mu_);
  std::erase_if(secrets_, [&](const auto& known) { return !secrets.contains(known.first); });
}

std::optional<std::string> ChildCache::Find(const ResourceType& type, const ObjectKey& key) const {
  if (type == SecretType()) {
    MutexLock lock(mu_);
    const auto found = secrets_.find(key);
    if (found == secrets_.end()) return std::nullopt;
    return found->second;
  }
  const ChildStore::Pointer found = stores_.at(type.plural).Find(key);
  return found == nullptr ? "" : VersionOf(found->meta);
}

absl::Status ChildCache::AwaitSynced(pushpull::Deadline deadline) const {
  for (const auto& [plural, store] : stores_) PUSHPULL_RETURN_IF_ERROR(store.AwaitSynced(deadline));
  return absl::OkStatus();
}

}  // namespace pushpull_operator
