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
  kBookmark,  // no change; the object has a resource version to resume from
  kError,     // ends the watch
  kUnknown,   // of a newer server; skip it
};

struct WatchEvent {
  WatchEventType type = WatchEventType::kUnknown;
  Object object;   // except for kError and kUnknown
  ApiError error;  // of kError
};

// kDataLoss if the frame is not an event. Unknown fields are ignored.
absl::StatusOr<WatchEvent> DecodeWatchEvent(absl::string_view frame);

}  // namespace pushpull_operator
