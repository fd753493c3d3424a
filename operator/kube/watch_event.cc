// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/watch_event.h"

#include <string>
#include <utility>

#include "operator/kube/json_fields.h"
#include "operator/kube/json_reader.h"

namespace pushpull_operator {
namespace {

WatchEventType TypeOf(absl::string_view name) {
  if (name == "ADDED") return WatchEventType::kAdded;
  if (name == "MODIFIED") return WatchEventType::kModified;
  if (name == "DELETED") return WatchEventType::kDeleted;
  if (name == "BOOKMARK") return WatchEventType::kBookmark;
  if (name == "ERROR") return WatchEventType::kError;
  return WatchEventType::kUnknown;
}

absl::StatusOr<WatchEvent> WithObject(WatchEvent event, ReadValue read) {
  absl::StatusOr<Object> object = DecodeObject(std::move(read.json), std::move(read.problem));
  if (!object.ok()) return absl::InvalidArgumentError(object.status().message());
  if (object->meta.key.name.empty() && event.type != WatchEventType::kBookmark)
    return absl::InvalidArgumentError("the API server sent an object without a name");
  event.object = *std::move(object);
  return event;
}

}  // namespace

absl::StatusOr<WatchEvent> DecodeWatchEvent(absl::string_view frame) {
  std::optional<ReadValue> object;
  const std::optional<Json> json = ReadEnvelope(
      frame, "object", Holds::kObject, [&object](ReadValue read) { object = std::move(read); });
  if (!json.has_value() || !json->is_object()) {
    return absl::DataLossError("a frame of the watch is not a JSON object");
  }
  const std::string type = StringField(*json, "type");
  if (type.empty()) return absl::DataLossError("a frame of the watch has no type");
  WatchEvent event{.type = TypeOf(type)};
  if (event.type == WatchEventType::kUnknown) return event;
  if (!object) return absl::DataLossError("a frame of the watch has no object");
  if (event.type == WatchEventType::kError) {
    event.error = DecodeApiError(500, ToText(object->json));
    return event;
  }
  return WithObject(std::move(event), *std::move(object));
}

}  // namespace pushpull_operator
