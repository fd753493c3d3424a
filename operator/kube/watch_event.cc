// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/watch_event.h"

#include <string>
#include <utility>

#include "operator/kube/json_fields.h"
#include "runtime/base/status_macros.h"

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

}  // namespace

absl::StatusOr<WatchEvent> DecodeWatchEvent(absl::string_view frame) {
  std::optional<Json> json = ParseApiJson(frame);
  if (!json.has_value() || !json->is_object()) {
    return absl::DataLossError("a frame of the watch is not a JSON object");
  }
  const std::string type = StringField(*json, "type");
  if (type.empty()) return absl::DataLossError("a frame of the watch has no type");
  WatchEvent event{.type = TypeOf(type)};
  if (event.type == WatchEventType::kUnknown) return event;
  const auto object = json->find("object");
  if (object == json->end()) {
    return absl::DataLossError("a frame of the watch has no object");
  }
  if (event.type == WatchEventType::kError) {
    event.error = DecodeApiError(500, ToText(*object));
    return event;
  }
  PUSHPULL_ASSIGN_OR_RETURN(event.object, DecodeObject(std::move(*object)));
  return event;
}

}  // namespace pushpull_operator
