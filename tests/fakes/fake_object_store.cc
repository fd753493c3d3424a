// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_object_store.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pushpull_operator {
namespace {

using Json = nlohmann::json;

// The plural names of collections end these paths: /api/v1/pods, /api/v1/namespaces/x/pods,
// /apis/group/version/namespaces/x/things.
struct Place {
  std::string collection;   // with the namespace if the path has one
  std::string name;         // empty: the collection itself
  std::string subresource;  // usually empty
};

Place PlaceOf(const std::string& path) {
  std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  size_t end = parts.empty() ? 0 : (parts[0] == "api" ? 2 : 3);  // after the version
  if (end + 1 < parts.size() && parts[end] == "namespaces" && end + 2 < parts.size()) end += 2;
  Place place;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i <= end) absl::StrAppend(&place.collection, "/", parts[i]);
    if (i == end + 1) place.name = parts[i];
    if (i == end + 2) place.subresource = parts[i];
  }
  return place;
}

std::string PathOf(const Place& place) {
  return absl::StrCat(place.collection, "/", place.name);
}

// "/api/v1/pods" contains the objects of all namespaces.
bool IsInside(const std::string& collection, const std::string& path) {
  const size_t slash = collection.rfind('/');
  if (absl::StartsWith(path, collection + "/")) return true;
  const std::string all = absl::StrCat(collection.substr(0, slash), "/namespaces/");
  const std::string own = PlaceOf(path).collection;
  return absl::StartsWith(own, all) && absl::EndsWith(own, collection.substr(slash));
}

std::string Text(const Json& json, const Json::json_pointer& pointer) {
  return json.contains(pointer) && json[pointer].is_string() ? json[pointer].get<std::string>()
                                                             : "";
}

std::string VersionOf(const Json& object) {
  return Text(object, "/metadata/resourceVersion"_json_pointer);
}

std::string UidOf(const Json& object) {
  return Text(object, "/metadata/uid"_json_pointer);
}

FakeAnswer NotFound(const std::string& path) {
  return Refusal(404, "NotFound", absl::StrCat(path, " not found"));
}

}  // namespace

FakeAnswer Refusal(int code, const std::string& reason, const std::string& message) {
  return {.code = code,
          .body = {{"kind", "Status"},
                   {"apiVersion", "v1"},
                   {"status", "Failure"},
                   {"code", code},
                   {"reason", reason},
                   {"message", message}}};
}

bool MatchesLabels(const Json& object, const std::string& selector) {
  for (const absl::string_view part : absl::StrSplit(selector, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> wanted =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const Json::json_pointer labels("/metadata/labels");
    if (!object.contains(labels) || !object[labels].contains(wanted.first)) return false;
    if (absl::StrContains(part, '=') && object[labels][wanted.first] != wanted.second) return false;
  }
  return true;
}

FakeAnswer FakeObjectStore::Handle(const FakeRequest& request) {
  const bool is_collection = PlaceOf(request.path).name.empty();
  if (request.method == "GET" && is_collection) return List(request);
  if (request.method == "POST" && is_collection) return Create(request);
  if (is_collection) return Refusal(405, "MethodNotAllowed", "not on a collection");
  if (request.method == "GET") {
    const auto found = objects_.find(request.path);
    if (found == objects_.end()) return NotFound(request.path);
    return {.body = found->second};
  }
  if (request.method == "PUT") return Replace(request);
  if (request.method == "PATCH") return Patch(request);
  if (request.method == "DELETE") return Delete(request);
  return Refusal(405, "MethodNotAllowed", request.method);
}

FakeAnswer FakeObjectStore::List(const FakeRequest& request) const {
  const auto parameter = [&](const char* key) {
    const auto found = request.query.find(key);
    return found == request.query.end() ? std::string() : found->second;
  };
  // A continue token is the version of the first page and the last path of the page before.
  std::pair<std::string, std::string> from =
      absl::StrSplit(parameter("continue"), absl::MaxSplits('|', 1));
  int64_t version = 0;
  if (!absl::SimpleAtoi(from.first, &version)) version = version_;
  if (!Remembers(version)) {
    return Refusal(410, "Expired", "the provided continue parameter is too old");
  }
  size_t limit = 0;
  if (!absl::SimpleAtoi(parameter("limit"), &limit)) limit = SIZE_MAX;
  Json list{{"kind", "List"}, {"apiVersion", "v1"}, {"items", Json::array()}};
  list["metadata"]["resourceVersion"] = absl::StrCat(version);
  std::string last;
  for (const auto& [path, object] : objects_) {
    if (path <= from.second || !IsInside(request.path, path)) continue;
    if (!MatchesLabels(object, parameter("labelSelector"))) continue;
    if (list["items"].size() == limit) {
      list["metadata"]["continue"] = absl::StrCat(version, "|", last);
      break;
    }
    list["items"].push_back(object);
    last = path;
  }
  return {.body = std::move(list)};
}

FakeAnswer FakeObjectStore::Create(const FakeRequest& request) {
  Json object = Json::parse(request.body, nullptr, false);
  if (!object.is_object()) return Refusal(400, "BadRequest", "no JSON object");
  const std::string name = Text(object, "/metadata/name"_json_pointer);
  if (name.empty()) return Refusal(422, "Invalid", "metadata.name: Required value");
  const std::string path = absl::StrCat(request.path, "/", name);
  if (objects_.contains(path)) {
    return Refusal(409, "AlreadyExists", absl::StrCat(path, " already exists"));
  }
  if (request.query.contains("dryRun")) return {.code = 201, .body = std::move(object)};
  return {.code = 201, .body = Store(path, std::move(object))};
}

FakeAnswer FakeObjectStore::Replace(const FakeRequest& request) {
  const Place place = PlaceOf(request.path);
  Json object = Json::parse(request.body, nullptr, false);
  if (!object.is_object()) return Refusal(400, "BadRequest", "no JSON object");
  return Update(PathOf(place), place.subresource, std::move(object));
}

FakeAnswer FakeObjectStore::Patch(const FakeRequest& request) {
  const Place place = PlaceOf(request.path);
  const std::string path = PathOf(place);
  const Json patch = Json::parse(request.body, nullptr, false);
  if (!patch.is_object()) return Refusal(400, "BadRequest", "no JSON object");
  const bool is_apply = request.content_type == "application/apply-patch+yaml";
  if (!is_apply && request.content_type != "application/merge-patch+json") {
    return Refusal(415, "UnsupportedMediaType", request.content_type);
  }
  if (is_apply && !request.query.contains("fieldManager")) {
    return Refusal(422, "Invalid", "fieldManager: Required value");
  }
  const auto found = objects_.find(path);
  if (found == objects_.end()) {
    if (!is_apply) return NotFound(path);
    return {.code = 201, .body = Store(path, patch)};
  }
  Json merged = found->second;
  merged.merge_patch(patch);
  if (request.query.contains("dryRun")) return {.body = std::move(merged)};
  return Update(path, place.subresource, std::move(merged));
}

FakeAnswer FakeObjectStore::Update(const std::string& path,
                                   const std::string& subresource,
                                   Json wanted) {
  const auto found = objects_.find(path);
  if (found == objects_.end()) return NotFound(path);
  const Json& now = found->second;
  const std::string version = VersionOf(wanted);
  if (!version.empty() && version != VersionOf(now)) {
    return Refusal(409,
                   "Conflict",
                   "the object has been modified; please apply your changes to the latest version");
  }
  if (!UidOf(wanted).empty() && UidOf(wanted) != UidOf(now)) {
    return Refusal(409, "Conflict", "Precondition failed: UID in object meta");
  }
  Json next = subresource == "status" ? now : std::move(wanted);
  if (subresource == "status") next["status"] = wanted.value("status", Json());
  if (subresource.empty() && now.contains("status")) next["status"] = now["status"];
  next["metadata"]["uid"] = UidOf(now);
  next["metadata"]["resourceVersion"] = VersionOf(now);
  if (next == now) return {.body = now};  // no change, no event
  return {.body = Store(path, std::move(next))};
}

FakeAnswer FakeObjectStore::Delete(const FakeRequest& request) {
  const std::string path = PathOf(PlaceOf(request.path));
  const auto found = objects_.find(path);
  if (found == objects_.end()) return NotFound(path);
  const Json options = Json::parse(request.body, nullptr, false);
  const std::string uid = Text(options, "/preconditions/uid"_json_pointer);
  const std::string version = Text(options, "/preconditions/resourceVersion"_json_pointer);
  if (!uid.empty() && uid != UidOf(found->second)) {
    return Refusal(409, "Conflict", "the UID in the precondition does not match");
  }
  if (!version.empty() && version != VersionOf(found->second)) {
    return Refusal(409, "Conflict", "the ResourceVersion in the precondition does not match");
  }
  Remove(path);
  return {.body = {{"kind", "Status"}, {"status", "Success"}}};
}

Json FakeObjectStore::Store(const std::string& path, Json object) {
  const Json before = Find(path);
  const Place place = PlaceOf(path);
  Json& metadata = object["metadata"];
  metadata["name"] = place.name;
  const std::vector<std::string> parts = absl::StrSplit(place.collection, '/');
  if (parts.size() > 3 && parts[parts.size() - 3] == "namespaces") {
    metadata["namespace"] = parts[parts.size() - 2];
  }
  metadata["uid"] = before.is_null() ? absl::StrCat("uid-", ++num_uids_) : UidOf(before);
  metadata["resourceVersion"] = absl::StrCat(++version_);
  history_.push_back({.version = version_,
                      .path = path,
                      .event = before.is_null() ? "ADDED" : "MODIFIED",
                      .object = object,
                      .before = before});
  objects_[path] = object;
  return object;
}

void FakeObjectStore::Put(const ResourceType& type, const ObjectKey& key, Json object) {
  Store(ObjectTarget(type, key), std::move(object));
}

void FakeObjectStore::Remove(const std::string& path) {
  const auto found = objects_.find(path);
  if (found == objects_.end()) return;
  Json last = std::move(found->second);
  objects_.erase(found);
  const Json before = last;
  last["metadata"]["resourceVersion"] = absl::StrCat(++version_);
  history_.push_back(
      {.version = version_, .path = path, .event = "DELETED", .object = last, .before = before});
}

Json FakeObjectStore::Find(const std::string& path) const {
  const auto found = objects_.find(path);
  return found == objects_.end() ? Json() : found->second;
}

const FakeObjectStore::Change* FakeObjectStore::Next(const std::string& collection,
                                                     int64_t version) const {
  for (const Change& change : history_) {
    if (change.version > version && IsInside(collection, change.path)) return &change;
  }
  return nullptr;
}

void FakeObjectStore::Compact() {
  compacted_ = ++version_;
  history_.clear();
}

}  // namespace pushpull_operator
