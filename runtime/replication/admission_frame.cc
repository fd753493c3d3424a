// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/admission_frame.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"
#include "runtime/replication/worker_bits.h"

namespace pushpull {

std::vector<std::byte> EncodeAdmission(const Admission& admission) {
  ByteWriter writer;
  writer.Put(admission.step.value());
  PutWorkerBits(admission.workers, writer);
  return writer.Take();
}

absl::StatusOr<Admission> TakeAdmission(std::span<const std::byte>& meta) {
  ByteReader reader(meta);
  Admission admission{.step = Step{reader.Get<uint64_t>()}, .workers = {}};
  if (!GetWorkerBits(reader, admission.workers)) {
    return absl::DataLossError(
        absl::StrCat("admission: its ", meta.size(), " bytes are not well formed"));
  }
  meta = meta.last(reader.num_left());
  return admission;
}

}  // namespace pushpull
