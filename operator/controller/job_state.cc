// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_state.h"

#include "operator/controller/object_maker.h"

namespace pushpull_operator {

void CreationState::Begin(int64_t term) {
  if (term > 0) unused_term_ = term;
}

void CreationState::End(const absl::Status& created, int64_t term) {
  if (absl::IsPermissionDenied(created)) Begin(term);
  obstacle_ = ObstacleOf(created);
  if (absl::IsInvalidArgument(created)) refusal_ = std::string(created.message());
}

}  // namespace pushpull_operator
