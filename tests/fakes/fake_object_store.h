// SPDX-License-Identifier: Apache-2.0
//
// The objects of a fake API server, without HTTP: resource versions and conflicts, taken names, uid
// preconditions, paged lists, a window of history, the status subresource, merge patch, server-side
// apply (without field ownership). Not implemented: schemas, defaults, admission, garbage
// collection.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/kube/object.h"

namespace pushpull_operator {

struct FakeRequest {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string token;
  std::string content_type;
  std::string body;
  bool is_watch() const { return query.contains("watch"); }
};

struct FakeAnswer {
  int code = 200;
  nlohmann::json body;
};

// Thread-compatible.
class FakeObjectStore {
 public:
  using Json = nlohmann::json;

  struct Change {
    int64_t version = 0;
    std::string path;
    std::string event;  // "ADDED", ...
    Json object;        // current or last state
    Json before;        // null if it was created
  };

  FakeAnswer Handle(const FakeRequest& request);

  int64_t version() const { return version_; }
  // Whether the history after `version` is complete.
  bool Remembers(int64_t version) const { return version >= compacted_; }
  // The first change of the collection after `version`; null if there is none yet.
  const Change* Next(const std::string& collection, int64_t version) const;
  void Compact();

  // Creates or replaces; sets the fields that the server owns.
  void Put(const ResourceType& type, const ObjectKey& key, Json object);
  void Remove(const std::string& path);
  Json Find(const std::string& path) const;
  size_t size() const { return objects_.size(); }

 private:
  struct Page;

  FakeAnswer List(const FakeRequest& request) const;
  FakeAnswer Create(const FakeRequest& request);
  FakeAnswer Replace(const FakeRequest& request);
  FakeAnswer Patch(const FakeRequest& request);
  FakeAnswer Delete(const FakeRequest& request);
  // Replaces the object by `wanted`; keeps the fields that the server owns.
  FakeAnswer Update(const std::string& path, const std::string& subresource, Json wanted);
  Json Store(const std::string& path, Json object);

  std::map<std::string, Json> objects_;  // by path: "/api/v1/namespaces/default/pods/a"
  std::deque<Change> history_;
  int64_t version_ = 100;
  int64_t compacted_ = 100;
  int64_t num_uids_ = 0;
};

// A Status object.
FakeAnswer Refusal(int code, const std::string& reason, const std::string& message);

// Selectors like "a=b,c": label a equals b, label c exists.
bool MatchesLabels(const nlohmann::json& object, const std::string& selector);

}  // namespace pushpull_operator
