// SPDX-License-Identifier: Apache-2.0
//
// The phases that partition the path of a step's last chunk (interfaces.md section 7), and the hook
// by which a test makes one of them slow.
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
  kQueue,        // in the worker, until the first byte left
  kWire,         // until the server had it whole
  kServerQueue,  // until the server looked at it
  kWait,         // for other contributors
  kSum,          // checks and addition of this contribution
  kOptimize,     // the optimizer's step on this chunk
  kReplicate,    // for the followers' acknowledgement
  kReply,        // from publication until the worker had it whole
  kApply,        // until the parameter tensor holds it and the caller knows
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

// Called inside the named phase. A test's hook takes its time there; production has none. wire and
// reply have no point of their own: the inproc channel delays them.
using FaultPoint = std::function<void(SyncPhase)>;

}  // namespace pushpull
