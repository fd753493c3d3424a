// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint that holds what has been saved of a job last.
#pragma once

#include <string>

#include "runtime/base/ids.h"

namespace pushpull {

struct SavedState {
  std::string folder;  // the checkpoint's own; empty: there is none
  Step step;           // the one that follows
  // The job begins with its values alone: it has nothing of the job's own.
  bool values_only = false;
};

}  // namespace pushpull
