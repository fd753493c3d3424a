// SPDX-License-Identifier: Apache-2.0
//
// Owner references: Kubernetes' garbage collector deletes the children with their job. For .cc
// files of operator/children. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "operator/kube/object.h"

namespace pushpull_operator {

// metadata.ownerReferences of a child of the TrainingJob `owner`, which controls it.
nlohmann::json OwnerReferences(const ObjectMeta& owner);

}  // namespace pushpull_operator
