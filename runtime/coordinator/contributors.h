// SPDX-License-Identifier: Apache-2.0
//
// Which workers contribute to steps, and in which mode: turns the decisions of view_agreement.h and
// mode_switch.h into messages. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/coordinator/clip_rules.h"
#include "runtime/coordinator/codec_rules.h"
#include "runtime/coordinator/collection.h"
#include "runtime/coordinator/job_state.h"
#include "runtime/coordinator/mode_switch.h"
#include "runtime/coordinator/ring_agreement.h"
#include "runtime/coordinator/row_rules.h"
#include "runtime/coordinator/tensor_catalog.h"
#include "runtime/coordinator/view_agreement.h"
#include "runtime/coordinator/worker_groups.h"

namespace pushpull {

// Thread-compatible.
class Contributors {
 public:
  // Both are used, not owned, and outlive this object.
  Contributors(JobState& job, const TensorCatalog& catalog);

  const View& active() const { return agreement().active(); }
  // The first view with workers is, or has been, in force.
  bool has_started() const { return has_started_; }
  // For the mode change that is under way, or else the last one.
  const ModeSwitch& mode_switch() const { return mode_switch_; }
  // The worker was a member of a view that has continued without it: its steps can no longer count.
  bool IsGivenUp(const RegisterWorker& worker) const;
  // Members of the view that have a session.
  std::set<WorkerId> Reachable() const;
  // kInvalidArgument: a codec, a clip_norm or rows do not fit the job; see CheckCodecs,
  // CheckClipping, CheckRowMode.
  absl::Status Check(std::span<const TensorSpec> tensors) const {
    return CheckIn(active().consistency, tensors);
  }

  // kFailedPrecondition: no step's samples are divided among the workers, so none has a batch.
  absl::Status CheckDividesSamples() const;

  // The registered servers have changed: each of them must accept a proposal.
  void UpdateServers() { Apply(views_.SetServers(job_.members.ServerIds())); }
  // Sends the views that a newly registered server has missed.
  void SendViewsTo(SessionId server);
  // Proposes the workers that have registered the tensors. The first view waits for the desired
  // number of them. Does nothing during a mode change.
  void AdmitReady(uint32_t desired_workers);
  // Repeats the admission for a worker that has not received it: the message was lost with the
  // coordinator that sent it.
  void Remind(const MemberRegistry::Worker& worker);

  void OnAnswer(ServerId server, const ViewAnswer& answer) { Apply(views_.Answer(server, answer)); }
  void OnHeld(WorkerId worker, const StepsHeld& held) { mode_switch_.OnHeld(worker, held); }
  // `stats.step` as the worker counts: without the steps that were skipped.
  void OnProgress(WorkerId worker, const WorkerStats& stats);
  void OnLeave(WorkerId worker, Step end_step, bool is_released);
  void Remove(WorkerId worker) { Apply(agreement().Remove(worker)); }
  // Mode AllReduce only; ignored in others.
  void OnStopped(WorkerId worker, const RingStopped& message) {
    if (ring_) Apply(ring_->OnStopped(worker, message));
  }
  void OnNews(WorkerId worker, const RingNews& message) {
    if (ring_) Apply(ring_->OnNews(worker, message));
  }

  // Workers turned out to be in other racks: in mode AllReduce they connect again, in others they
  // may form other groups.
  void OnRacks() {
    if (ring_) Apply(ring_->Regroup());
    SetGroups();
    SendGroups();
  }

  // Restores the state that an earlier coordinator left.
  void Recover(const CollectedJob& job);
  // Activates the view again, with a number above `seen`.
  void Renew(uint64_t seen) { Apply(views_.Renew(seen)); }

  // The requested mode. kInvalidArgument: it contradicts itself, the manifest or a tensor.
  absl::StatusOr<Consistency> CheckMode(const ModeChange& change, uint32_t desired_workers) const;
  // Starts the change to a mode that has passed CheckMode; does nothing if it is already in force.
  // kFailedPrecondition: another change is under way.
  absl::Status ChangeMode(const Consistency& desired);
  // To be called after every event; `may_begin`: the job is running. True when a change has ended
  // and workers that were kept waiting can be admitted.
  bool AdvanceMode(bool may_begin);

 private:
  bool DividesSamples() const;
  const WorkerAgreement& agreement() const {
    return ring_ ? static_cast<const WorkerAgreement&>(*ring_) : views_;
  }
  WorkerAgreement& agreement() { return ring_ ? static_cast<WorkerAgreement&>(*ring_) : views_; }
  void Apply(const ViewChange& change);
  void SendRing(FormRing form);
  // Lets servers know who may push jointly; workers are told by SendGroups.
  void SetGroups() { Apply(views_.SetGroups(GroupsByPlace(job_.members, groups_.by()))); }
  void SendGroups();
  absl::Status CheckIn(const Consistency& consistency, std::span<const TensorSpec> tensors) const;

  JobState& job_;
  const TensorCatalog& catalog_;
  ViewAgreement views_;                // with the servers
  std::optional<RingAgreement> ring_;  // mode AllReduce: takes their place
  WorkerGroups groups_;
  ModeSwitch mode_switch_;
  bool has_started_ = false;
};

}  // namespace pushpull
