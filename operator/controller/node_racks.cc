// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/node_racks.h"

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

// Once this many nodes are known, all are forgotten when the next one is read.
constexpr size_t kKnownMax = 10'000;

const ResourceType& NodeType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "nodes"};
  return type;
}

}  // namespace

absl::Status NodeRacks::Read(const ObservedJob& job, std::map<std::string, std::string>& racks) {
  const std::string& label = job.object().job.spec.workers.topology_key;
  if (label.empty()) return absl::OkStatus();
  absl::Status failed;
  for (const PodStore::Pointer& pod : job.pods) {
    const std::string& node = pod->value.node;
    if (node.empty() || racks.contains(node)) continue;
    const absl::StatusOr<std::string> rack = RackOf({node, label}, job.now);
    failed.Update(rack.status());
    if (rack.ok() && !rack->empty()) racks[node] = *rack;
  }
  return failed;
}

absl::StatusOr<std::string> NodeRacks::RackOf(const NodeAndLabel& key, WallTime now) {
  {
    pushpull::MutexLock lock(mu_);
    const auto found = known_.find(key);
    if (found != known_.end() && now < found->second.until) return found->second.rack;
  }
  const absl::StatusOr<ObjectMeta> node = client_.GetMeta(
      NodeType(), {.object_namespace = "", .name = key.first}, client_.CallDeadline());
  if (!node.ok() && !absl::IsNotFound(node.status())) return node.status();
  std::string rack;
  if (node.ok()) {
    const auto label = node->labels.find(key.second);
    if (label != node->labels.end()) rack = label->second;
  }
  pushpull::MutexLock lock(mu_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_[key] = {.rack = rack, .until = now + (rack.empty() ? kUnlabelledFor : kKeptFor)};
  return rack;
}

}  // namespace pushpull_operator
