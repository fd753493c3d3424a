// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a topology: no crash, no endless work, only printable problems. What is accepted is
// planned, and reads back as it was written.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

#include "runtime/base/check.h"
#include "runtime/plan/parse_topology.h"
#include "runtime/plan/plan.h"

namespace {

void CheckAccepted(const pushpull::Topology& topology) {
  const pushpull::Plan plan =
      pushpull::MakePlan(topology, {.bytes = 1.6e8, .compute_seconds = 0.25, .batch = 64});
  PUSHPULL_CHECK(!plan.strategies.empty());
  for (const pushpull::Strategy& strategy : plan.strategies)
    PUSHPULL_CHECK(std::isfinite(strategy.seconds) && strategy.seconds >= 0);
  PUSHPULL_CHECK(!pushpull::ToText(plan).empty() && !pushpull::ToJson(plan).empty());
  PUSHPULL_CHECK(pushpull::ParseTopology(pushpull::ToYaml(topology)).problems.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const pushpull::ParsedTopology parsed = pushpull::ParseTopology(text);
  if (parsed.problems.empty()) CheckAccepted(parsed.topology);
  for (const pushpull::ManifestProblem& problem : parsed.problems) {
    for (const char c : pushpull::ToString(problem)) {
      PUSHPULL_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
    }
  }
  return 0;
}
