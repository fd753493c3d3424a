// SPDX-License-Identifier: Apache-2.0
//
// One frame of a watch as a struct. Pure.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/api_error.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

enum class WatchEventType {
  kAdded,
  kModified,
  kDeleted,
  kBookmark,  // nothing changed; the object has a resource version to go on from
  kError,     // the watch is over
  kUnknown,   // of a newer server; to be skipped
};

struct WatchEvent {
  WatchEventType type = WatchEventType::kUnknown;
  Object object;   // not of kError and kUnknown
  ApiError error;  // of kError
};

// kDataLoss when the frame is no event. Objects may have any fields and kinds besides.
absl::StatusOr<WatchEvent> DecodeWatchEvent(absl::string_view frame);

}  // namespace pushpull_operator
