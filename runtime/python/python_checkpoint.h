// SPDX-License-Identifier: Apache-2.0
//
// A Checkpoint for the interpreter: reads into arrays without the interpreter lock, and turns
// statuses into exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "pushpull/checkpoint.h"

namespace pushpull::python {

// Adds the classes EngineCheckpoint and CheckpointTensor. OptimizerSpec has been added before.
void DefineCheckpoint(nanobind::module_& module);

}  // namespace pushpull::python
