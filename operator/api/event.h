// SPDX-License-Identifier: Apache-2.0
//
// An Event of events.k8s.io/v1: what happened to a job, for `kubectl describe`. Only ever written.
// Pure.
#pragma once

#include <chrono>
#include <string>

#include "operator/kube/object.h"

namespace pushpull_operator {

inline const ResourceType& EventType() {
  static const ResourceType type{.group = "events.k8s.io", .version = "v1", .plural = "events"};
  return type;
}

struct Event {
  enum class Kind { kNormal, kWarning };
  Kind kind = Kind::kNormal;
  std::string reason;  // CamelCase, at most 128 bytes
  std::string action;  // CamelCase: what the operator did or found, at most 128 bytes
  std::string note;    // a sentence; truncated to the API's limit
  friend bool operator==(const Event&, const Event&) = default;
};

// A new object `key` about the job `regarding`, in the job's namespace, from the operator's
// instance `reporter`.
std::string NewEventText(const ObjectKey& key,
                         const Event& event,
                         const ObjectMeta& regarding,
                         const std::string& reporter,
                         std::chrono::system_clock::time_point time);

// A merge patch for an event that has happened `count` times by now; at least 2.
std::string EventSeriesText(int count, std::chrono::system_clock::time_point time);

}  // namespace pushpull_operator
