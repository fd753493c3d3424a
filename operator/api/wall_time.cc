// SPDX-License-Identifier: Apache-2.0
#include "operator/api/wall_time.h"

#include "absl/time/time.h"

namespace pushpull_operator {

std::optional<WallTime> ParseWallTime(absl::string_view text) {
  absl::Time time;
  std::string error;
  // The library also reads "infinite-future".
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return std::nullopt;
  return WallTime(std::chrono::seconds(absl::ToUnixSeconds(time)));
}

std::string ToText(WallTime time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ",
                          absl::FromUnixSeconds(time.time_since_epoch().count()),
                          absl::UTCTimeZone());
}

}  // namespace pushpull_operator
