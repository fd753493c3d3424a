// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint that holds what has been saved of a job last.
#pragma once

#include <string>

#include "runtime/base/ids.h"
#include "runtime/checkpoint/manifest.h"

namespace pushpull {

struct SavedState {
  std::string folder;  // the checkpoint's own; empty: there is none
  Step step;           // the one that follows
};

// The step that follows a checkpoint: the highest, if chunks were saved at different ones.
Step StepAfter(const CheckpointManifest& manifest);

}  // namespace pushpull
