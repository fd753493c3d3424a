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

template <typename Id>
std::string NameMembers(const std::vector<Id>& members) {
  return absl::StrJoin(
      members, ", ", [](std::string* out, Id member) { out->append(ToString(member)); });
}

std::string Count(uint64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

void AddPart(uint64_t chunks, absl::string_view from, std::string& text) {
  if (chunks > 0) absl::StrAppend(&text, "; ", Count(chunks, "value"), " ", from);
}

}  // namespace

std::string HeadlineOf(const Stall& stall) {
  return absl::StrCat("step ",
                      stall.step.value(),
                      " waits for ",
                      NameMembers(stall.missing),
                      ": ",
                      MissingIn(stall));
}

std::string MissingIn(const Stall& stall) {
  if (!stall.collective.empty()) return absl::StrCat("not in the others' ", stall.collective);
  if (stall.tensor.empty()) return "not all gradients are pushed";
  return absl::StrCat("no gradient of tensor \"", stall.tensor, "\"");
}

std::string ToString(const Stall& stall) {
  std::string text = absl::StrFormat("%s for %.1f s", HeadlineOf(stall), stall.seconds);
  if (!stall.detail.empty()) absl::StrAppend(&text, "; ", stall.detail);
  if (!stall.waiting.empty()) {
    absl::StrAppend(
        &text, "; ", NameMembers(stall.waiting), stall.waiting.size() == 1 ? " waits" : " wait");
  }
  return text;
}

bool JobStatus::has_stepped() const {
  const Step begin = checkpoint.restored_step.value_or(Step{});
  return steps_made > 0 || std::any_of(servers.begin(), servers.end(), [&](const ServerStatus& it) {
           return it.stats.highest_version > begin;
         });
}

absl::string_view StateOf(const WorkerStatus& worker) {
  if (worker.has_left) return "done";
  if (worker.is_member) return "member";
  if (worker.is_alive) return "joining";
  if (worker.was_released) return "released";
  return worker.left_out.empty() ? "gone" : "left out";
}

absl::string_view NameOf(CulpritKind kind) {
  switch (kind) {
    case CulpritKind::kWorker:
      return "worker";
    case CulpritKind::kServer:
      return "server";
    case CulpritKind::kLink:
      return "link";
  }
  return "?";
}

std::string MemberOf(const Culprit& culprit) {
  const std::string worker = culprit.worker ? ToString(*culprit.worker) : "";
  const std::string server = culprit.server ? ToString(*culprit.server) : "";
  return absl::StrCat(worker, worker.empty() || server.empty() ? "" : "/", server);
}

std::string WhoOf(const Culprit& culprit) {
  return absl::StrCat(culprit.kind == CulpritKind::kLink ? "link of " : "", MemberOf(culprit));
}

std::string ToString(const Culprit& culprit) {
  return absl::StrFormat("%s holds the others up for %.1f ms of each step (%.0f %%)",
                         WhoOf(culprit),
                         culprit.seconds * 1e3,
                         culprit.share * 100);
}

std::string ToString(const WorkerActivity& activity) {
  const auto subject = [&](absl::string_view before) {
    return activity.subject.empty() ? "" : absl::StrCat(before, "\"", activity.subject, "\"");
  };
  const std::string servers =
      activity.servers.empty() ? "" : absl::StrCat(" from ", NameMembers(activity.servers));
  const auto since = [&](absl::string_view what) {
    return absl::StrFormat("%s for %.1f s", what, activity.seconds);
  };
  const std::string step = absl::StrCat(", step ", activity.step.value());
  switch (activity.phase) {
    case WorkerPhase::kJoining:
      return since("joining");
    case WorkerPhase::kComputing:
      return absl::StrCat(since("computing"), step, subject(", last pushed tensor "));
    case WorkerPhase::kWaiting:
      return absl::StrCat(
          since("waiting"), step, subject(", last pushed tensor "), ", no answer", servers);
    case WorkerPhase::kPulling:
      return absl::StrCat(
          since(absl::StrCat("pulling", subject(" tensor "))), ", no answer", servers);
    case WorkerPhase::kInCollective:
      return absl::StrCat(since("in a collective"), subject(": "));
    case WorkerPhase::kChangingMode:
      return absl::StrCat(since("waiting for the change of the mode"), step);
    case WorkerPhase::kLeaving:
      return since("leaving");
  }
  return "?";
}

std::string ToString(const StateLoss& loss) {
  std::string text =
      absl::StrCat(NameShards(loss.shards), " (", Count(loss.chunks, "chunk"), ") lost");
  if (!loss.servers.empty()) {
    absl::StrAppend(&text, " with ", NameMembers(loss.servers));
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
