// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/worker_registration.h"

#include <utility>

namespace pushpull {

WorkerRegistration::WorkerRegistration(MemberRegistry& registry,
                                       ShardDirectory& shards,
                                       Contributors& contributors,
                                       Outbox& outbox,
                                       std::function<void()> on_placed)
    : registry_(registry),
      shards_(shards),
      contributors_(contributors),
      outbox_(outbox),
      on_placed_(std::move(on_placed)) {}

std::optional<JobFailure> WorkerRegistration::RegisterWaiting() {
  for (const auto& [id, request] : std::exchange(waiting_, {})) {
    const MemberRegistry::Worker& worker = *registry_.Find(id);
    const bool is_first = shards_.catalog().tensors().empty();
    const Consistency& active = contributors_.active().consistency;
    absl::Status registered =
        shards_.Register(id, request.tensors, contributors_.CodecRulesIn(active));
    if (!registered.ok()) {
      outbox_.Refuse(worker.session, std::move(registered));
      continue;
    }
    registry_.OnTensorsRegistered(id);
    contributors_.Remind(worker);
    if (!is_first) continue;
    if (std::optional<JobFailure> failure = shards_.Place()) return failure;
    on_placed_();
  }
  AdmitReady();
  return std::nullopt;
}

// While servers lack tensors, a checkpoint's chunks or lost shards, a joining worker would wait for
// values that nobody can publish.
void WorkerRegistration::AdmitReady() {
  const uint64_t version = shards_.catalog().version();
  const bool has_tables = version > 0 && registry_.AllServersHave(version);
  if (has_tables && !shards_.is_restoring() && !shards_.has_losses()) contributors_.AdmitReady();
}

}  // namespace pushpull
