// SPDX-License-Identifier: Apache-2.0
//
// What an API server does with objects, without HTTP: resource versions and conflicts, names taken,
// uid preconditions, lists in pages, a window of history, the status subresource, merge patch,
// server-side apply (without ownership of fields). What it does not have: schemas, defaults,
// admission, garbage collection.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/kube/resource.h"

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
    Json object;        // as it is now, or was last
    Json before;        // null when it was not there
  };

  FakeAnswer Handle(const FakeRequest& request);

  int64_t version() const { return version_; }
  // Whether all that happened after `version` is still known.
  bool Remembers(int64_t version) const { return version >= compacted_; }
  // The first change after `version` inside the collection, null when there is none yet.
  const Change* Next(const std::string& collection, int64_t version) const;
  void Compact();

  // Creates or replaces; sets what the server sets.
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
  // `wanted` in the object's place; keeps what only the server sets.
  FakeAnswer Update(const std::string& path, const std::string& subresource, Json wanted);
  Json Store(const std::string& path, Json object);

  std::map<std::string, Json> objects_;  // by path: "/api/v1/namespaces/default/pods/a"
  std::deque<Change> history_;
  int64_t version_ = 100;
  int64_t compacted_ = 100;
  int64_t num_uids_ = 0;
};

// The Status object of a refusal.
FakeAnswer Refusal(int code, const std::string& reason, const std::string& message);

// "a=b,c" of labels: equal to b, there at all.
bool MatchesLabels(const nlohmann::json& object, const std::string& selector);

}  // namespace pushpull_operator
