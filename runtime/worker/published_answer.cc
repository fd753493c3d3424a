// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/published_answer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/wire_bytes.h"
#include "runtime/replication/admission_frame.h"

namespace pushpull {

PublishedAnswer ReadPublishedAnswer(const ReceivedFrame& frame, ShardId shard) {
  PublishedAnswer answer;
  std::span<const std::byte> meta = frame.meta;
  const absl::StatusOr<PublishedTiming> timing = DecodePublishedTiming(meta);
  if (timing.ok()) answer.timing = *timing;
  meta = meta.subspan(std::min(meta.size(), kPublishedTimingBytes));
  if ((frame.header.flags & kFlagAdmission) != 0) {
    absl::StatusOr<Admission> admission = TakeAdmission(meta);
    if (admission.ok()) answer.admission = *std::move(admission);
  }
  if ((frame.header.flags & kFlagOptimizerState) != 0) {
    ByteReader reader(meta);
    answer.updates = reader.Get<uint64_t>();
    meta = meta.subspan(std::min(meta.size(), sizeof(uint64_t)));
  }
  if (meta.empty()) return answer;
  absl::StatusOr<ShardEntry> entry = DecodeShardEntry(meta);
  if (entry.ok() && entry->shard == shard) answer.entry = *std::move(entry);
  return answer;
}

}  // namespace pushpull
