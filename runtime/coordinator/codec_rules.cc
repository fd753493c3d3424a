// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/codec_rules.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/tensor/codec.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

// Empty: no obstacle.
std::string InTheWay(const TensorSpec& tensor, const CodecRules& rules) {
  const Consistency& consistency = rules.consistency;
  if (tensor.reduction != Reduction::kMean && tensor.reduction != Reduction::kSum) {
    return absl::StrCat("needs reduction mean or sum, which is ",
                        ToString(tensor.reduction),
                        ": what it keeps back is added to a later gradient");
  }
  if (!consistency.is_sync()) {
    return absl::StrCat(
        "needs spec.sync.mode Sync, which is ",
        NameOf(consistency.mode),
        ": without steps that all take, no checkpoint could have what it keeps back");
  }
  if (consistency.backup_workers > 0) {
    return absl::StrCat("needs spec.sync.backupWorkers 0, which is ",
                        consistency.backup_workers,
                        ": a push that is not admitted would take what was kept back with it");
  }
  if (consistency.gated) {
    return "needs spec.sync.gated false: a step that is decided without a worker would take what "
           "it "
           "had kept back with it";
  }
  if (rules.is_deterministic && rules.has_checkpoints) {
    return "cannot be had with both spec.sync.deterministic and spec.checkpoint: what it keeps "
           "back "
           "is pushed before a checkpoint, and when that comes depends on time";
  }
  return "";
}

}  // namespace

absl::Status CheckCodecs(std::span<const TensorSpec> tensors, const CodecRules& rules) {
  const auto keeps_back =
      absl::c_find_if(tensors, [](const TensorSpec& tensor) { return HasMemory(tensor.codec); });
  if (keeps_back == tensors.end()) return absl::OkStatus();
  const std::string in_the_way = InTheWay(*keeps_back, rules);
  if (in_the_way.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("tensor \"%s\": codec %s %s; use fp16, bf16 or int8 there",
                      keeps_back->name,
                      ToString(keeps_back->codec),
                      in_the_way));
}

}  // namespace pushpull
