// SPDX-License-Identifier: Apache-2.0
//
// Lays what a user writes in spec.<role>.template over the pod that the operator would make. For
// .cc files of operator/children. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pushpull_operator {

// Objects are merged field by field, and a null takes a field away. Lists of named things
// (containers, volumes, environment) are merged by name; tolerations are added; every other list is
// replaced.
//
// Source: the shape of Kubernetes' strategic merge patch, for the lists of a pod. Differs: no
// directives ($patch).
void LayOver(const nlohmann::json& overlay, nlohmann::json& base);

}  // namespace pushpull_operator
