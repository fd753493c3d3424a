// SPDX-License-Identifier: Apache-2.0
//
// JSON as the tree that the codec of the manifest reads. For .cc files of operator/api.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/job/tree.h"

namespace pushpull_operator {

// The same value; a number that is no 64-bit integer becomes one of Kind::kNumber. Recursive: for
// JSON that ParseJson has read, which bounds the depth.
pushpull::Tree ToTree(const nlohmann::json& json);

}  // namespace pushpull_operator
