// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/job_member.h"

#include <unistd.h>

namespace pushpull {

RegisterWorker RegistrationOf(const WorkerNodeOptions& options, Term promised, bool is_member) {
  return {.worker = options.worker,
          .incarnation = options.incarnation,
          .metrics_address = options.metrics_address,
          .pid = static_cast<uint64_t>(getpid()),
          .promised = promised,
          .is_member = is_member,
          .ring_address = options.ring_address,
          .rack = options.rack,
          .group_address = options.group_port == nullptr ? "" : options.group_port->address(),
          .node = options.node};
}

}  // namespace pushpull
