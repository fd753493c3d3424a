// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/consistency/admission.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// What a publication contains besides the value. Damaged parts are left out.
struct PublishedAnswer {
  std::optional<PublishedTiming> timing;
  std::optional<Admission> admission;
  std::optional<uint64_t> updates;  // of the optimizer's state in the payload
  std::optional<ShardEntry> entry;  // of `shard`; sent with the first answer of its epoch
};

// Reads the meta of a kPublished of a chunk of `shard`.
PublishedAnswer ReadPublishedAnswer(const ReceivedFrame& frame, ShardId shard);

}  // namespace pushpull
