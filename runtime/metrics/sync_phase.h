// SPDX-License-Identifier: Apache-2.0
//
// The phases that partition the path of a step's last chunk (docs/interfaces.md section 7), and the
// hook with which a test slows one of them down.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class SyncPhase : uint8_t {
  kReduce = 0,   // inside the node, before the push
  kEncode,       // codec and cutting into chunks
  kQueue,        // in the worker, until the first byte was sent
  kWire,         // until the server had received it completely
  kServerQueue,  // until the server processed it
  kWait,         // for other contributors
  kSum,          // checks and addition of this contribution
  kOptimize,     // the optimizer's step on this chunk
  kReplicate,    // for the followers' acknowledgement
  kReply,        // from publication until the worker had received it completely
  kApply,        // until the parameter tensor has it and the caller is notified
};
constexpr size_t kSyncPhaseCount = 11;

constexpr std::array<absl::string_view, kSyncPhaseCount> kSyncPhaseNames = {"reduce",
                                                                            "encode",
                                                                            "queue",
                                                                            "wire",
                                                                            "server_queue",
                                                                            "wait",
                                                                            "sum",
                                                                            "optimize",
                                                                            "replicate",
                                                                            "reply",
                                                                            "apply"};

// Called inside the named phase. A test's hook delays it; production has none. The phases wire and
// reply are delayed by the tests' inproc channel instead.
using FaultPoint = std::function<void(SyncPhase)>;

}  // namespace pushpull
