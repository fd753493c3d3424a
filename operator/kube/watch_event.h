// SPDX-License-Identifier: Apache-2.0
//
// Decodes one frame of a watch. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/api_error.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

enum class WatchEventType {
  kAdded,
  kModified,
  kDeleted,
  kBookmark,  // no change; the object carries a resource version to resume from
  kError,     // ends the watch
  kUnknown,   // from a newer server; skip it
};

struct WatchEvent {
  WatchEventType type = WatchEventType::kUnknown;
  Object object;   // except for kError and kUnknown; with a name except for kBookmark
  ApiError error;  // of kError
};

// Unknown fields are ignored.
//
//   kDataLoss         the frame is not an event: the stream cannot be trusted
//   kInvalidArgument  the event is about an object without metadata or name: skip it
absl::StatusOr<WatchEvent> DecodeWatchEvent(absl::string_view frame);

}  // namespace pushpull_operator
