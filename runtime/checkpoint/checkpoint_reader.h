// SPDX-License-Identifier: Apache-2.0
//
// pushpull/checkpoint.h on any file system.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "pushpull/checkpoint.h"

#include "runtime/checkpoint/file_system.h"

namespace pushpull {

// As Checkpoint::Open. `files` outlives the result.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(FileSystem& files, std::string path);

}  // namespace pushpull
