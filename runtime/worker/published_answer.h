// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/transport/channel.h"

namespace pushpull {

// What a publication has besides the value; parts that are damaged are left out.
struct PublishedAnswer {
  std::optional<PublishedTiming> timing;
  std::optional<Admission> admission;
  std::optional<ShardEntry> entry;  // of `shard`; comes with the first answer of its epoch
};

// Pure.
PublishedAnswer ReadPublishedAnswer(const ReceivedFrame& frame, ShardId shard);

}  // namespace pushpull
