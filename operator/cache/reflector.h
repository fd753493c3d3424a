// SPDX-License-Identifier: Apache-2.0
//
// Keeps a sink like the API server: lists the objects of a kind, then watches them, for as long as
// it runs.
#pragma once

#include <chrono>
#include <functional>
#include <random>

#include "operator/cache/object_sink.h"
#include "operator/cache/reflection.h"
#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"

namespace pushpull_operator {

struct ReflectorOptions {
  ResourceType type;
  Selection selection;
  // Of one listing, all its pages.
  std::chrono::seconds list_time{60};
  // A watch lasts between this and twice this, so that those of many operators do not end at once.
  std::chrono::seconds watch_time{300};
  // For the log: something failed that is worth a line. May be empty.
  std::function<void(const absl::Status&)> on_trouble;
};

// Thread-compatible.
class Reflector {
 public:
  // All must outlive the reflector.
  Reflector(KubeClient& client, PausingTime& time, ObjectSink& sink, ReflectorOptions options);

  // Runs until it is cancelled; nothing else ends it. Holds one connection for the watch. A listing
  // that is under way is ended by KubeClient::Stop only.
  void Run(const Cancellation& cancellation);

 private:
  pushpull::Duration List();
  pushpull::Duration Watch(const Cancellation& cancellation);
  absl::Status Take(WatchEvent event);
  void Trouble(const absl::Status& status) const;
  double Jitter() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  KubeClient& client_;
  PausingTime& time_;
  ObjectSink& sink_;
  const ReflectorOptions options_;
  Reflection reflection_;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace pushpull_operator
