// SPDX-License-Identifier: Apache-2.0
#include "operator/children/ownership.h"

#include <nlohmann/json.hpp>

#include "runtime/job/training_job.h"

namespace pushpull_operator {

using Json = nlohmann::json;

Json OwnerReferences(const ObjectMeta& owner) {
  return Json::array({{{"apiVersion", pushpull::kTrainingJobApiVersion},
                       {"kind", pushpull::kTrainingJobKind},
                       {"name", owner.key.name},
                       {"uid", owner.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", true}}});
}

}  // namespace pushpull_operator
