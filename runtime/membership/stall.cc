// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/stall.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace pushpull {

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

}  // namespace pushpull
