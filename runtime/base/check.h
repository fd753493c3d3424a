// SPDX-License-Identifier: Apache-2.0
//
// PUSHPULL_CHECK aborts the process when one of its own invariants is violated. Never use it for a
// message, a file, a flag, a peer or a resource: those return a status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define PUSHPULL_CHECK(condition)                                                            \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
