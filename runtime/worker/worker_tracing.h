// SPDX-License-Identifier: Apache-2.0
//
// Spans of the program's threads on their way to the worker's trace.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "pushpull/tracing.h"

#include "runtime/base/executor.h"
#include "runtime/transport/peer_clock.h"
#include "runtime/worker/trace_recorder.h"

namespace pushpull {

// Thread-safe.
class WorkerTracing final : public Tracing {
 public:
  // Both outlive this object and the tasks that it posts.
  WorkerTracing(Executor& executor, TraceRecorder& trace) : executor_(executor), trace_(trace) {}

  bool is_on() const override { return trace_.is_on(); }
  void Span(absl::string_view name, SteadyTime begin, SteadyTime end) override {
    if (!is_on()) return;
    executor_.Post([this,
                    span = TracedSpan{.name = std::string(name),
                                      .begin = NanosecondsOf(begin),
                                      .end = NanosecondsOf(end)}] { trace_.AddSpan(span); });
  }

 private:
  Executor& executor_;
  TraceRecorder& trace_;
};

}  // namespace pushpull
