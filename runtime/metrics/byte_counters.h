// SPDX-License-Identifier: Apache-2.0
//
// One byte counter per kind of channel, for both ends of the data path.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include <prometheus/counter.h>

#include "runtime/metrics/registry.h"

namespace pushpull {

// Label `channel` = tcp, shm, grpc or inproc (tests); all exist from the start. Thread-safe.
class BytesByChannel {
 public:
  BytesByChannel(MetricsRegistry& registry, const std::string& name, const std::string& help)
      : family_(prometheus::BuildCounter().Name(name).Help(help).Register(registry.registry())),
        tcp_(family_.Add({{"channel", "tcp"}})),
        shm_(family_.Add({{"channel", "shm"}})),
        grpc_(family_.Add({{"channel", "grpc"}})),
        inproc_(family_.Add({{"channel", "inproc"}})) {}

  void Add(absl::string_view channel, uint64_t bytes) {
    Of(channel).Increment(static_cast<double>(bytes));
  }

 private:
  prometheus::Counter& Of(absl::string_view channel) {
    if (channel == "tcp") return tcp_;
    if (channel == "grpc") return grpc_;
    return channel == "shm" ? shm_ : inproc_;
  }

  prometheus::Family<prometheus::Counter>& family_;
  prometheus::Counter& tcp_;
  prometheus::Counter& shm_;
  prometheus::Counter& grpc_;
  prometheus::Counter& inproc_;
};

}  // namespace pushpull
