// SPDX-License-Identifier: Apache-2.0
//
// Counts what gRPC's threads still hold of a transport, whose destructor waits for them.
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
  // gRPC holds one more object, or one less.
  void Add() ABSL_LOCKS_EXCLUDED(mu_);
  void Remove() ABSL_LOCKS_EXCLUDED(mu_);

  // Counts a stream until Remove. After EndWires, ends the stream at once.
  void AddWire(const std::shared_ptr<Wire>& wire) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends all streams, including those added later.
  void EndWires() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until gRPC holds nothing.
  void AwaitNone() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  CondVar changed_;
  size_t count_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Wire>> wires_ ABSL_GUARDED_BY(mu_);  // some have expired
};

}  // namespace pushpull
