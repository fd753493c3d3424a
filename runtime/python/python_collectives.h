// SPDX-License-Identifier: Apache-2.0
//
// The collectives and messages of a job for the interpreter; programs call pushpull/_collectives.py
// and pushpull/_messages.py.
#pragma once

#include <nanobind/nanobind.h>

#include "runtime/python/python_job.h"

namespace pushpull::python {

// Adds barrier, all_reduce, all_gather, broadcast, send, recv and send_recv.
void DefineCollectives(nanobind::class_<PythonJob>& job);

}  // namespace pushpull::python
