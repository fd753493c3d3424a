// SPDX-License-Identifier: Apache-2.0
//
// The status of a job as the operator wrote it. Plans start from it, whatever others have written
// there, and the next patch heals it. An operator that has just started has to believe what it
// finds. Pure.
#pragma once

#include <optional>

#include "operator/api/training_job_status.h"

namespace pushpull_operator {

class StatusMemory {
 public:
  // The true status, while the API server has `observed`.
  const TrainingJobStatus& Recall(const TrainingJobStatus& observed) {
    // The response to a write may have been lost.
    if (attempted_ && observed == *attempted_) written_ = attempted_;
    attempted_.reset();
    if (!written_) written_ = observed;
    return *written_;
  }

  // A write is about to be sent; whether it arrives is unknown until the response.
  void OnWrite(const TrainingJobStatus& next) { attempted_ = next; }
  void OnWritten() {
    written_ = attempted_;
    attempted_.reset();
  }

 private:
  std::optional<TrainingJobStatus> written_;
  std::optional<TrainingJobStatus> attempted_;
};

}  // namespace pushpull_operator
