// SPDX-License-Identifier: Apache-2.0
//
// How the coordinator gets servers to agree on the next view (docs/protocol.md section 4). Leaves
// and deaths take effect at once: a step then just waits for fewer workers. A join needs every
// server's confirmation that no chunk has passed the joiner's first step, so it is proposed first:
//
//   idle --1 a worker joins--> proposed --2 all accept--> active (joiners are notified)
//                                 ^ |
//                                 | +--3 one rejects: a higher first step, a new number
//                                 +----4 a worker left or died meanwhile: a new number
//
// If no worker is left that the joiners would overtake, they start from step 0 and take the values
// that the servers have (a full restart). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/coordinator/worker_agreement.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class ViewAgreement final : public WorkerAgreement {
 public:
  // `servers`: those that must agree; `consistency`: the mode in which the job begins.
  explicit ViewAgreement(std::set<ServerId> servers, const Consistency& consistency = {})
      : servers_(std::move(servers)) {
    active_.consistency = consistency;
  }

  // The state that an earlier coordinator left: the view in force, the highest number that any
  // member has seen, and the workers that have reached their first step.
  static ViewAgreement FromCollected(std::set<ServerId> servers,
                                     View active,
                                     uint64_t last_number,
                                     std::set<WorkerId> established);
  // Activates the view again, with a number above those proposed or activated up to `seen`.
  ViewChange Renew(uint64_t seen);

  // `servers`: those registered, each of which must accept a proposal.
  ViewChange SetServers(std::set<ServerId> servers);
  // The workers' groups, as members and as joiners (ViewMember::group). One that is not named keeps
  // its group. Takes effect at once, as Leave does.
  ViewChange SetGroups(const std::map<WorkerId, uint64_t>& groups);
  ViewChange Join(const std::map<WorkerId, Incarnation>& joiners) override;
  // Takes effect at once: a step just waits for fewer workers.
  ViewChange Leave(WorkerId worker, Step end_step, bool is_released) override;
  ViewChange Leave(WorkerId worker, Step end_step) { return Leave(worker, end_step, false); }
  ViewChange Remove(WorkerId worker) override;
  // Switches all members to another mode, at `first_step` or later. None of their pushes may be in
  // flight, and no other proposal may be under way.
  ViewChange ChangeMode(const Consistency& wanted, Step first_step);
  // A server's answer to a proposal; answers to older proposals are ignored.
  ViewChange Answer(ServerId server, const ViewAnswer& answer);
  // The worker has completed the steps below `step`; once it has reached its first step, it needs
  // no other worker to bring it there.
  void OnProgress(WorkerId worker, Step step);

  const View& active() const override { return active_; }
  // The proposed view, which must also be sent to a server that has just registered.
  std::optional<View> proposed() const {
    return proposal_ ? std::optional<View>(proposal_->view) : std::nullopt;
  }

 private:
  struct Proposal {
    View view;
    std::map<ServerId, ViewAnswer> answers;
  };

  void Propose();
  void ConcludeIfAnswered();
  void Activate();
  void RescueStranded();
  void RaiseMode(Step lowest_free);
  View NextView() const;

  std::set<ServerId> servers_;
  uint64_t last_number_ = 0;
  View active_;
  std::map<WorkerId, Incarnation> joiners_;
  std::map<WorkerId, uint64_t> groups_;
  std::set<WorkerId> established_;  // members that have reached their first step
  std::optional<Proposal> proposal_;
  std::optional<Consistency> next_mode_;
  Step first_step_;        // for the next proposal
  uint64_t refusals_ = 0;  // in a row
  ViewChange change_;      // by the call under way
};

}  // namespace pushpull
