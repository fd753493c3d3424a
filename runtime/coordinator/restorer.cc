// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/restorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

constexpr char kStepsSkipped[] = "steps_skipped";  // 8 bytes, little-endian

// The version that all chunks get, if they were saved at different ones.
std::optional<Step> CommonVersion(const CheckpointManifest& manifest) {
  if (manifest.versions == ChunkVersions::kOfOneStep) return std::nullopt;
  return StepAfter(manifest);
}

}  // namespace

SystemSection StepsSkippedSection(const Consistency& consistency) {
  ByteWriter bytes;
  bytes.Put(consistency.steps_skipped);
  return {kStepsSkipped, bytes.Take()};
}

Consistency RestoredConsistency(Consistency at_start, const LoadedCheckpoint& checkpoint) {
  for (const SystemSection& section : checkpoint.manifest.system) {
    if (section.name == kStepsSkipped && section.bytes.size() == sizeof at_start.steps_skipped)
      at_start.steps_skipped = LoadNumber<uint64_t>(section.bytes);
  }
  return at_start;
}

absl::Status Restorer::Check(std::span<const TensorSpec> tensors) const {
  const std::vector<std::string> differences = values_only_
                                                   ? CompareValues(checkpoint_->manifest, tensors)
                                                   : CompareTensors(checkpoint_->manifest, tensors);
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint_->folder,
      ": is a checkpoint of another model: ",
      differences.front(),
      differences.size() > 1 ? absl::StrCat(", and ", differences.size() - 1, " more differences")
                             : "",
      "; change the program back, or spec.checkpoint"));
}

std::string Restorer::Describe(std::span<const TensorSpec> tensors) const {
  const CheckpointManifest& manifest = checkpoint_->manifest;
  const std::string step = absl::StrCat(manifest.step.value(), " from ", checkpoint_->folder);
  if (!values_only_) return absl::StrCat("restoring step ", step);
  const std::vector<std::string> lacking = LackingValues(manifest, tensors);
  const std::string rest =
      absl::StrCat("; not in it, and as the program begins them: ", absl::StrJoin(lacking, ", "));
  return absl::StrCat("beginning with the values of step ", step, lacking.empty() ? "" : rest);
}

// Every member of a shard reads its chunks itself, followers too. So all have the same state when
// the first entries take effect, just as all have none in a job that starts without a checkpoint.
const std::map<ServerId, Restore>& Restorer::Begin(ReplicaChange first,
                                                   const std::set<ServerId>& servers,
                                                   bool is_sync) {
  const CheckpointManifest& manifest = checkpoint_->manifest;
  Restore order{.folder = checkpoint_->folder, .sequence = manifest.sequence, .shards = {}};
  order.values_only = values_only_;
  if (is_sync && !values_only_) order.version = CommonVersion(manifest);
  for (const ServerId server : servers) orders_[server] = order;
  for (const auto& [shard, entry] : first.entries) {
    if (entry.primary) orders_[*entry.primary].shards.push_back(shard);
    for (const ServerId follower : entry.followers) orders_[follower].shards.push_back(shard);
  }
  first_ = std::move(first);
  return orders_;
}

const Restore* Restorer::Find(ServerId server) const {
  const auto found = orders_.find(server);
  return found == orders_.end() ? nullptr : &found->second;
}

std::optional<ReplicaChange> Restorer::Finish() {
  const bool is_done = absl::c_all_of(
      orders_, [this](const auto& order) { return restored_.contains(order.first); });
  if (!first_ || !is_done) return std::nullopt;
  orders_.clear();
  return std::exchange(first_, std::nullopt);
}

}  // namespace pushpull
