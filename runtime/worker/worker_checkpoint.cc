// SPDX-License-Identifier: Apache-2.0
//
// The part of WorkerNode for checkpoints. What a codec has left out of a worker's gradients is in
// no server: in the last step before the checkpoint it is sent, so that what is saved has all of it
// (decisions/0038-error-feedback.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/worker/worker_node.h"

namespace pushpull {

void WorkerNode::On(const Capture& message) {
  capture_ = message;
  if (is_member_) SendWholeIfAsked();
}

void WorkerNode::On(const EndCapture& message) {
  if (!capture_ || capture_->attempt != message.attempt) return;
  capture_.reset();
  client_->ForgetWhole();
}

void WorkerNode::SendWholeIfAsked() {
  if (!capture_) return;
  const uint64_t version = capture_->step.value();
  client_->SendWhole(Step{version - std::min<uint64_t>(version, 1)});
}

void WorkerNode::OnWhole(bool is_whole) {
  if (!capture_) return;
  const Capture capture = *std::exchange(capture_, std::nullopt);
  Captured word{
      .attempt = capture.attempt, .status = {}, .highest_version = capture.step, .files = {}};
  if (!is_whole) {
    word.status = absl::AbortedError(
        absl::StrCat("gradients of steps before ", capture.step.value(), " are not whole"));
  }
  session_->Send(std::move(word));
}

}  // namespace pushpull
