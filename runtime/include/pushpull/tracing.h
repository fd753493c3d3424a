// SPDX-License-Identifier: Apache-2.0
//
// What a worker's program adds to a trace (`pushpull trace`, docs/tracing.md):
//
//   const auto begin = std::chrono::steady_clock::now();
//   ... load a batch ...
//   job.tracing().Span("load", begin, std::chrono::steady_clock::now());
#pragma once

#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

namespace pushpull {

// Belongs to one Job. Thread-safe; nothing blocks.
class Tracing {
 public:
  virtual ~Tracing() = default;

  // Whether a trace is under way. For programs in which measuring itself has a cost.
  virtual bool is_on() const = 0;
  // Names what the program did from `begin` to `end`. Names are truncated to 300 bytes. Ignored
  // while no trace is on.
  virtual void Span(absl::string_view name, SteadyTime begin, SteadyTime end) = 0;
};

}  // namespace pushpull
