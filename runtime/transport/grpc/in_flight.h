// SPDX-License-Identifier: Apache-2.0
//
// What gRPC's threads still have of a transport: its end waits for them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/mutex.h"

namespace pushpull {

class Wire;

// Thread-safe.
class InFlight {
 public:
  // One thing more that gRPC has, and one less.
  void Add() ABSL_LOCKS_EXCLUDED(mu_);
  void Remove() ABSL_LOCKS_EXCLUDED(mu_);

  // A stream, which counts until Remove. When the transport is ending it is ended.
  void AddWire(const std::shared_ptr<Wire>& wire) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends all streams, and those that are still added.
  void EndWires() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until gRPC has nothing.
  void AwaitNone() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  CondVar changed_;
  size_t count_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Wire>> wires_ ABSL_GUARDED_BY(mu_);  // some have ended
};

}  // namespace pushpull
