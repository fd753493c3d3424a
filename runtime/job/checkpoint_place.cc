// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/checkpoint_place.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace pushpull {

absl::StatusOr<std::string> CheckpointRoot(const CheckpointSpec& checkpoint,
                                           const std::string& workdir) {
  constexpr absl::string_view kScheme = "file://";
  std::string folder;
  if (!checkpoint.uri.empty()) {
    folder = checkpoint.uri.substr(kScheme.size());
  } else if (workdir.empty()) {
    return absl::InvalidArgumentError(
        "spec.checkpoint.claim: is mounted somewhere; say where with --checkpoints");
  } else {
    folder = absl::StrCat(workdir, "/claims/", checkpoint.claim, checkpoint.path);
  }
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

std::string NamespaceOf(const JobMetadata& metadata) {
  return metadata.namespace_name.empty() ? "default" : metadata.namespace_name;
}

std::string JobCheckpoints(const std::string& root, const JobMetadata& metadata) {
  return absl::StrCat(absl::StripSuffix(root, "/"), "/", NamespaceOf(metadata), "/", metadata.name);
}

}  // namespace pushpull
