// SPDX-License-Identifier: Apache-2.0
//
// How the coordinator agrees on which workers contribute to which steps: with the servers
// (view_agreement.h) or, in mode AllReduce, with the workers themselves (ring_agreement.h). Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"

namespace pushpull {

// What the caller must send after a change. Thread-compatible.
struct ViewChange {
  std::optional<View> propose = {};       // to every server
  std::optional<View> activate = {};      // to every server and worker
  std::vector<ViewMember> admitted = {};  // new members, to be notified
  // Mode AllReduce.
  std::optional<StopRing> stop = {};  // to `stopped`
  std::vector<WorkerId> stopped = {};
  std::optional<FormRing> form = {};  // to its workers; the caller adds their addresses
  std::string problem = {};           // for the log; may be empty
  std::string failure = {};           // why the job cannot continue; empty: it can
};

class WorkerAgreement {
 public:
  virtual ~WorkerAgreement() = default;

  // Workers to be admitted; several at once, so that the first view has all of them. Those already
  // known change nothing.
  virtual ViewChange Join(const std::map<WorkerId, Incarnation>& joiners) = 0;
  // The worker contributes to no step from `end_step` on; `is_released`: it leaves with its part
  // unfinished.
  virtual ViewChange Leave(WorkerId worker, Step end_step, bool is_released) = 0;
  // The worker is dead, or has ended after it left.
  virtual ViewChange Remove(WorkerId worker) = 0;

  virtual const View& active() const = 0;
  // The worker has already joined.
  virtual bool IsMember(WorkerId worker) const { return active().Find(worker) != nullptr; }
};

}  // namespace pushpull
