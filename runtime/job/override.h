// SPDX-License-Identifier: Apache-2.0
//
// `--set spec.servers.replicas=4`: replaces one value of a manifest before it is decoded, so that
// an override is checked exactly as if it had been written in the file.
#pragma once

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

// Applies `assignment`, PATH=VALUE, to the manifest `root`.
//
//   PATH    keys separated by dots, list positions in brackets: spec.restart.rules[0].action.
//           Missing objects are created; a position one past the end of a list appends.
//   VALUE   YAML: 4 is an integer, '"4"' a string and ["a", "b"] a list; empty unsets the field.
//
// An assignment that cannot be applied becomes a problem at PATH.
void ApplyOverride(absl::string_view assignment, Tree& root, Problems& problems);

}  // namespace pushpull
