// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as manifest and overrides: no crash, no endless work, only printable problems, and what
// is accepted is inside its limits. Input: the text, then each override after a NUL.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

#include "runtime/base/check.h"
#include "runtime/job/local_rules.h"
#include "runtime/job/parse.h"

namespace {

void CheckAccepted(const pushpull::TrainingJob& job) {
  PUSHPULL_CHECK(!job.metadata.name.empty() && job.metadata.name.size() <= 48);
  PUSHPULL_CHECK(job.spec.servers.replicas >= 0 && job.spec.servers.replicas <= 1024);
  PUSHPULL_CHECK(job.spec.workers.replicas >= 1 && job.spec.workers.replicas <= 4096);
  PUSHPULL_CHECK(job.spec.sync.backup_workers < job.spec.workers.replicas);
  pushpull::LocallyIgnoredFields(job);
  pushpull::LocalProblems(job);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts = absl::StrSplit(input, '\0');
  const std::string text = parts[0];
  parts.erase(parts.begin());

  const pushpull::ParsedJob parsed = pushpull::ParseTrainingJob(text, parts);

  if (parsed.problems.empty()) CheckAccepted(parsed.job);
  for (const pushpull::ManifestProblem& problem : parsed.problems) {
    for (const char c : pushpull::ToString(problem)) {
      PUSHPULL_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
    }
  }
  return 0;
}
