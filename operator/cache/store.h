// SPDX-License-Identifier: Apache-2.0
//
// The cached objects of one kind: one writer, any number of readers. An object is stored as
// metadata and as the `T` that a codec decodes from it, not as JSON, to save memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/kube/client.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

// What a reflector writes into. Lists are delivered separately from watch events, so that a store
// can apply a whole list at once. Called by one thread.
class ObjectSink : public ListVisitor {
 public:
  // The list is complete: exactly these objects exist.
  virtual void EndListing() = 0;
  // The object was created or changed.
  virtual void Apply(Object object) = 0;
  // The object was deleted; this is its last state.
  virtual void Remove(Object object) = 0;
};

// Immutable once it is in a store.
template <typename T>
struct Stored {
  ObjectMeta meta;
  absl::Status decoded;  // the codec's error, for the controller to report
  T value{};             // valid if `decoded` is OK
};

template <typename T>
struct StoreOptions {
  std::function<absl::StatusOr<T>(const Object&)> decode;
  // An index value in addition to the key, such as "default/mnist" for the pods of a job; empty:
  // not indexed. The function itself may be empty too.
  std::function<std::string(const ObjectMeta&)> index;
  // Called on the writer's thread after each change, without a lock: (null, now) created, (old,
  // null) deleted, (old, now) changed. An object recreated under the same name causes two calls.
  // Must not block.
  std::function<void(const Stored<T>* old, const Stored<T>* now)> on_change;
};

// One thread writes (as to a sink); reading is thread-safe.
template <typename T>
class Store final : public ObjectSink {
 public:
  using Pointer = std::shared_ptr<const Stored<T>>;

  explicit Store(StoreOptions<T> options) : options_(std::move(options)) {}

  // Null if there is none.
  Pointer Find(const ObjectKey& key) const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : found->second;
  }

  // In the order of their keys.
  std::vector<Pointer> FindByIndex(const std::string& index) const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    std::vector<Pointer> found;
    const auto keys = index_.find(index);
    if (keys == index_.end()) return found;
    for (const ObjectKey& key : keys->second) found.push_back(objects_.at(key));
    return found;
  }

  std::vector<Pointer> All() const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    std::vector<Pointer> all;
    all.reserve(objects_.size());
    for (const auto& [key, stored] : objects_) all.push_back(stored);
    return all;
  }

  // Waits until the first list is complete. kDeadlineExceeded.
  absl::Status AwaitSynced(pushpull::Deadline deadline) const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    while (!has_synced_) {
      if (!synced_.WaitUntil(mu_, deadline) && !has_synced_) {
        return absl::DeadlineExceededError("the first list is not complete");
      }
    }
    return absl::OkStatus();
  }

  void BeginListing() override { listed_.clear(); }

  void AddListed(Object object) override {
    ObjectKey key = object.meta.key;
    listed_[std::move(key)] = Decode(std::move(object));
  }

  void EndListing() override ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::pair<Pointer, Pointer>> changes;
    {
      pushpull::MutexLock lock(mu_);
      for (auto& [key, old] : objects_) {
        const auto listed = listed_.find(key);
        if (listed == listed_.end()) changes.emplace_back(old, nullptr);
      }
      for (auto& [key, now] : listed_) {
        const auto found = objects_.find(key);
        const Pointer old = found == objects_.end() ? nullptr : found->second;
        if (old != now) changes.emplace_back(old, now);
      }
      for (const auto& [old, now] : changes) Put(old, now);
      has_synced_ = true;
      synced_.NotifyAll();
    }
    listed_.clear();
    for (const auto& [old, now] : changes) Notify(old, now);
  }

  void Apply(Object object) override ABSL_LOCKS_EXCLUDED(mu_) {
    const ObjectKey key = object.meta.key;
    Pointer now = Decode(std::move(object));
    Change(key, std::move(now));
  }

  void Remove(Object object) override ABSL_LOCKS_EXCLUDED(mu_) { Change(object.meta.key, nullptr); }

 private:
  // Keeps the stored object if it is the same version: a relist mostly finds nothing new.
  Pointer Decode(Object object) ABSL_LOCKS_EXCLUDED(mu_) {
    Pointer old = Find(object.meta.key);
    if (old != nullptr && old->meta.uid == object.meta.uid &&
        old->meta.resource_version == object.meta.resource_version) {
      return old;
    }
    auto stored = std::make_shared<Stored<T>>();
    absl::StatusOr<T> value = options_.decode(object);
    if (value.ok()) {
      stored->value = *std::move(value);
    } else {
      stored->decoded = value.status();
    }
    stored->meta = std::move(object.meta);
    return stored;
  }

  void Change(const ObjectKey& key, Pointer now) ABSL_LOCKS_EXCLUDED(mu_) {
    Pointer old;
    {
      pushpull::MutexLock lock(mu_);
      const auto found = objects_.find(key);
      if (found != objects_.end()) old = found->second;
      if (old == now) return;
      Put(old, now);
    }
    Notify(old, now);
  }

  std::string IndexOf(const Stored<T>& stored) const {
    return options_.index ? options_.index(stored.meta) : "";
  }

  void Put(const Pointer& old, const Pointer& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (old != nullptr) {
      const auto keys = index_.find(IndexOf(*old));
      if (keys != index_.end()) {
        keys->second.erase(old->meta.key);
        if (keys->second.empty()) index_.erase(keys);
      }
      if (now == nullptr) objects_.erase(ObjectKey(old->meta.key));
    }
    if (now == nullptr) return;
    const std::string index = IndexOf(*now);
    if (!index.empty()) index_[index].insert(now->meta.key);
    objects_[now->meta.key] = now;
  }

  void Notify(const Pointer& old, const Pointer& now) const {
    if (!options_.on_change) return;
    if (old != nullptr && now != nullptr && old->meta.uid != now->meta.uid) {
      options_.on_change(old.get(), nullptr);
      options_.on_change(nullptr, now.get());
      return;
    }
    options_.on_change(old.get(), now.get());
  }

  const StoreOptions<T> options_;
  std::map<ObjectKey, Pointer> listed_;  // for the writer only

  mutable pushpull::Mutex mu_;
  mutable pushpull::CondVar synced_;
  std::map<ObjectKey, Pointer> objects_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::set<ObjectKey>> index_ ABSL_GUARDED_BY(mu_);
  bool has_synced_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace pushpull_operator
