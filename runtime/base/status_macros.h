// SPDX-License-Identifier: Apache-2.0
//
// The project's only macros with hidden control flow. Abseil has had such macros since 2023; delete
// these when the pinned version, Debian 12's, has them.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define PUSHPULL_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    absl::Status pushpull_status_ = (expr);              \
    if (!pushpull_status_.ok()) return pushpull_status_; \
  } while (false)

#define PUSHPULL_CONCAT_INNER_(a, b) a##b
#define PUSHPULL_CONCAT_(a, b) PUSHPULL_CONCAT_INNER_(a, b)
#define PUSHPULL_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                    \
  if (!result.ok()) return std::move(result).status();     \
  lhs = std::move(result).value()

// Evaluates `expr`, a StatusOr; assigns its value to `lhs` or returns its status.
#define PUSHPULL_ASSIGN_OR_RETURN(lhs, expr) \
  PUSHPULL_ASSIGN_OR_RETURN_IMPL_(PUSHPULL_CONCAT_(pushpull_result_, __LINE__), lhs, expr)
