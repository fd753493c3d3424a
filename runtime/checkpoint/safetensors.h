// SPDX-License-Identifier: Apache-2.0
//
// Writes a checkpoint's tensors as one file in the format of safetensors
// (https://github.com/huggingface/safetensors): the length of the header in 8 bytes, the header in
// JSON, then the elements of all tensors, little-endian, without gaps.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "pushpull/checkpoint.h"

#include "runtime/checkpoint/file_system.h"

namespace pushpull {

struct ExportOptions {
  std::string file;  // replaced when all is written
  // Also the state of optimizers: "optimizer.NAME.exp_avg", and the steps made as
  // "optimizer.NAME.step" if the optimizer ran on the servers.
  bool with_optimizer = false;
};

// A row-sparse tensor becomes two, "NAME.keys" and "NAME.rows". Needs memory for one such tensor
// and otherwise for a few MiB. Blocks on the disk. Errors as of Checkpoint and WritableFile.
absl::Status ExportSafetensors(const Checkpoint& checkpoint,
                               FileSystem& files,
                               const ExportOptions& options);

}  // namespace pushpull
