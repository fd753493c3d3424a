// SPDX-License-Identifier: Apache-2.0
//
// A worker's half of steps in which the leading chunk decides who counts: steps with backup workers
// (docs/decisions/0018-the-first-chunk-admits.md) and gated steps (consistency/gate.h,
// docs/decisions/0019-gated-step.md).
//
//   collecting --1--> asked --2--> settling --3--> collecting
//
// 1 Every tensor is pushed. Backup workers: now only the leading chunk is sent. Gated: the other
//   chunks were sent as the program pushed them, and the leading one is sent when their servers
//   hold them all.
// 2 The leading chunk is answered. If the worker is admitted, its other chunks are pushed (gated:
//   the decision is sent to them); otherwise nothing more is pushed.
// 3 Every chunk is here in the newest version that any of them had: those behind were fetched. All
//   pushes of the step finish together.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/view.h"
#include "runtime/worker/request_table.h"

namespace pushpull {

// What to do next; at most one member is set.
struct StepActions {
  std::vector<ChunkId> push;    // send these chunks' pushes
  std::vector<ChunkId> decide;  // send these chunks' primaries the leading chunk's decision
  std::vector<ChunkId> fetch;   // send these chunks' fetches
  std::optional<Step> settled;  // every chunk is here in this version, the number of the next step

  bool empty() const { return push.empty() && decide.empty() && fetch.empty() && !settled; }
};

// Pure. Thread-compatible.
class StepAgreement {
 public:
  // `chunks` outlives this object.
  StepAgreement(WorkerId worker, RequestTable& chunks) : worker_(worker), chunks_(chunks) {}

  // After the tensors are set, and not while a push is under way.
  void UseMode(const Consistency& mode);
  // The step under way has failed.
  void Restart();
  // All pushes are answered, in whatever version: the chunks behind must be fetched.
  void Settle() { phase_ = Phase::kSettling; }

  // Whether the leading chunk decides in the current mode.
  bool is_led() const { return is_led_; }
  // Whether a push of the chunk must not be sent before Next returns it.
  bool HoldsBack(const ClientChunk& chunk) const {
    return is_led_ && (!is_gated_ || chunks_.IsLeading(chunk));
  }

  // The program has pushed a tensor; the push is in `chunks`.
  void OnTensorPushed(PendingOperation& pending);
  // An answer carried this decision.
  void OnAdmission(Admission admission) {
    if (!admission_ || admission_->step < admission.step) admission_ = std::move(admission);
  }

  // Call after each push, answer and kHeld until it returns nothing. Changes phase_ and, in
  // `chunks`, which pushes are held or answered.
  StepActions Next();

  // The decision to send along with the request; null: none.
  const Admission* AdmissionFor(const ClientChunk& chunk, const ChunkRequest& request) const;
  // Whether this worker counts in the last decided step.
  bool was_admitted() const { return was_admitted_; }
  // Only after Next has returned chunks to `decide`.
  const Admission& decision() const { return *admission_; }

 private:
  enum class Phase { kCollecting, kAsked, kSettling };

  bool MayAsk() const;
  StepActions Ask();
  StepActions Decide();
  StepActions FetchOrFinish();
  void BeginFetch(ClientChunk& chunk, Step version);

  const WorkerId worker_;
  RequestTable& chunks_;
  bool is_led_ = false;
  bool is_gated_ = false;
  Phase phase_ = Phase::kCollecting;
  size_t tensors_pushed_ = 0;           // in this step
  bool was_admitted_ = false;           // to the last decided step
  std::optional<Admission> admission_;  // of the newest step known
  std::vector<std::byte> scratch_;      // receives values that the program does not want
};

}  // namespace pushpull
