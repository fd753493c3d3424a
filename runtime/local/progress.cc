// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/progress.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {

namespace {

template <typename Member>
auto CountAlive(const std::vector<Member>& members) {
  return std::count_if(
      members.begin(), members.end(), [](const Member& member) { return member.is_alive; });
}

}  // namespace

std::string FormatProgress(const JobStatus& status, const JobStatus& before) {
  const std::string members = absl::StrCat(
      " | ", CountAlive(status.servers), " servers | ", CountAlive(status.workers), " workers");
  if (status.phase == JobPhase::kStarting) return absl::StrCat("starting", members);
  std::string line = absl::StrCat("step ", status.step.value());
  if (!status.losses.empty())
    absl::StrAppendFormat(&line, " | loss %.4f", status.losses.back().loss);
  const double seconds = status.seconds - before.seconds;
  if (seconds > 0 && status.samples >= before.samples) {
    absl::StrAppendFormat(
        &line, " | %.0f samples/s", static_cast<double>(status.samples - before.samples) / seconds);
  }
  if (status.sync_seconds.count() > 0)
    absl::StrAppendFormat(&line, " | sync %.1f ms", status.sync_seconds.At(0.5) * 1e3);
  return line + members;
}

}  // namespace pushpull
