// SPDX-License-Identifier: Apache-2.0
//
// The collectives of a job for the interpreter; pushpull/_collectives.py is what programs call.
#pragma once

#include <nanobind/nanobind.h>

#include "runtime/python/python_job.h"

namespace pushpull::python {

// Adds barrier, all_reduce, all_gather and broadcast.
void DefineCollectives(nanobind::class_<PythonJob>& job);

}  // namespace pushpull::python
