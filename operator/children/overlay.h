// SPDX-License-Identifier: Apache-2.0
//
// Merges a user's spec.<role>.template over the pod that the operator would create. For .cc files
// of operator/children. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pushpull_operator {

// Objects are merged field by field, and a null removes a field. Lists of named items (containers,
// volumes, environment) are merged by name; tolerations are added; all other lists are replaced.
//
// Source: the shape of Kubernetes' strategic merge patch, for the lists of a pod. Differs: no
// directives ($patch).
void LayOver(const nlohmann::json& overlay, nlohmann::json& base);

}  // namespace pushpull_operator
