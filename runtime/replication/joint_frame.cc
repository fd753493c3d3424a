// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/joint_frame.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"
#include "runtime/consistency/push_numbers.h"
#include "runtime/consistency/worker_group.h"
#include "runtime/replication/worker_bits.h"

namespace pushpull {
namespace {

constexpr size_t kEntryBytes = 20;  // worker, incarnation, weight

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("workers of a joint push: ", what));
}

}  // namespace

std::vector<std::byte> EncodeJoint(std::span<const Contribution> contributors) {
  ByteWriter writer;
  for (const Contribution& contribution : contributors) {
    writer.Put(contribution.worker.value());
    writer.Put(contribution.incarnation.value());
    writer.Put(contribution.weight);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<Contribution>> DecodeJoint(std::span<const std::byte> meta) {
  const size_t count = meta.size() / kEntryBytes;
  if (meta.size() % kEntryBytes != 0 || count < 2 || count > kGroupMembersMax)
    return Malformed(absl::StrCat(meta.size(), " bytes"));
  ByteReader reader(meta);
  std::vector<Contribution> contributors;
  contributors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Contribution contribution;
    contribution.worker = WorkerId{reader.Get<uint32_t>()};
    contribution.incarnation = Incarnation{reader.Get<uint64_t>()};
    contribution.weight = reader.Get<double>();
    const bool is_in_order =
        contributors.empty() || contributors.back().worker < contribution.worker;
    if (!is_in_order || contribution.worker.value() >= kWorkersMax)
      return Malformed(
          absl::StrCat(ToString(contribution.worker), " is listed twice, out of order or unknown"));
    const absl::Status numbers = CheckPushNumbers(contribution.weight, 0);
    if (!numbers.ok()) return Malformed(numbers.message());
    contributors.push_back(contribution);
  }
  return contributors;
}

}  // namespace pushpull
