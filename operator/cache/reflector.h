// SPDX-License-Identifier: Apache-2.0
//
// Mirrors the objects of one kind into a sink: lists them, then watches them.
#pragma once

#include <chrono>
#include <functional>
#include <random>

#include "operator/cache/reflector_state.h"
#include "operator/cache/store.h"
#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"

namespace pushpull_operator {

struct ReflectorOptions {
  ResourceType type;
  Selection selection;
  // Deadline of one list with all its pages.
  std::chrono::seconds list_time{60};
  // A watch lasts between this and twice this, so that the watches of many operators do not end at
  // the same time.
  std::chrono::seconds watch_time{300};
  // For the log; called for failures worth a line (retry_pace.h). May be empty.
  std::function<void(const absl::Status&)> on_error;
};

// Thread-compatible.
class Reflector {
 public:
  // All must outlive the reflector.
  Reflector(KubeClient& client, PausingTime& time, ObjectSink& sink, ReflectorOptions options);

  // Runs until it is cancelled; nothing else ends it. The watch holds one connection. Only
  // KubeClient::Stop ends a list in progress.
  void Run(const Cancellation& cancellation);

 private:
  pushpull::Duration List();
  pushpull::Duration Watch(const Cancellation& cancellation);
  absl::Status Take(WatchEvent event);
  void ReportError(const absl::Status& status) const;
  double Jitter() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  KubeClient& client_;
  PausingTime& time_;
  ObjectSink& sink_;
  const ReflectorOptions options_;
  ReflectorState state_;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace pushpull_operator
