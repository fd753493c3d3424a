// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/job_status.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace pushpull {
namespace {

constexpr size_t kShardsNamed = 8;

std::string NameShards(const std::vector<ShardId>& shards) {
  const size_t named = std::min(shards.size(), kShardsNamed);
  std::string text = absl::StrCat(
      shards.size() == 1 ? "shard " : "shards ",
      absl::StrJoin(shards.begin(),
                    shards.begin() + static_cast<std::ptrdiff_t>(named),
                    ", ",
                    [](std::string* out, ShardId shard) { absl::StrAppend(out, shard.value()); }));
  if (named < shards.size()) absl::StrAppend(&text, " and ", shards.size() - named, " more");
  return text;
}

std::string Count(uint64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

void AddPart(uint64_t chunks, absl::string_view from, std::string& text) {
  if (chunks > 0) absl::StrAppend(&text, "; ", Count(chunks, "value"), " ", from);
}

}  // namespace

std::string ToString(const Stall& stall) {
  const std::string missing =
      absl::StrJoin(stall.missing, ", ", [](std::string* out, WorkerId worker) {
        out->append(ToString(worker));
      });
  return absl::StrFormat("step %d waits for %s: no gradient of tensor \"%s\" for %.1f s",
                         stall.step.value(),
                         missing,
                         stall.tensor,
                         stall.seconds);
}

std::string ToString(const StateLoss& loss) {
  std::string text =
      absl::StrCat(NameShards(loss.shards), " (", Count(loss.chunks, "chunk"), ") lost");
  if (!loss.servers.empty()) {
    absl::StrAppend(
        &text, " with ", absl::StrJoin(loss.servers, ", ", [](std::string* out, ServerId server) {
          absl::StrAppend(out, ToString(server));
        }));
  }
  if (loss.is_waiting) return text + "; waiting for it to come back";
  if (!loss.is_repaired) return text + "; being rebuilt from what the workers have";
  if (loss.returned == loss.shards.size()) return text + "; back with everything";
  if (loss.returned > 0)
    absl::StrAppend(&text, "; ", Count(loss.returned, "shard"), " back with everything");
  AddPart(loss.from_workers, "from workers", text);
  AddPart(loss.from_checkpoint, "from a checkpoint", text);
  AddPart(loss.reinitialized, "not there yet", text);
  if (loss.from_workers + loss.from_checkpoint > 0) {
    absl::StrAppend(&text, "; step ", loss.lowest_version.value());
    if (loss.lowest_version != loss.highest_version)
      absl::StrAppend(&text, " to ", loss.highest_version.value());
  }
  if (loss.outdated > 0)
    absl::StrAppend(&text, "; updates of ", Count(loss.outdated, "chunk"), " are lost");
  if (loss.has_optimizer_state) {
    absl::StrAppend(&text, "; optimizer state ");
    if (!loss.state_step) {
      absl::StrAppend(&text, "zero");
    } else {
      absl::StrAppend(&text, "of the checkpoint of step ", loss.state_step->value());
      if (loss.highest_version > *loss.state_step) {
        const uint64_t steps = loss.highest_version.value() - loss.state_step->value();
        absl::StrAppend(&text, ", ", Count(steps, "step"), " of it lost");
      }
    }
  }
  return absl::StrCat(text, "; ", absl::SixDigits(loss.seconds), " s without them");
}

}  // namespace pushpull
