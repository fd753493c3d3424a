// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/worker_bits.h"

#include "runtime/base/check.h"

namespace pushpull {

void PutWorkerBits(std::span<const WorkerId> workers, ByteWriter& writer) {
  std::vector<uint8_t> bits;
  for (const WorkerId worker : workers) {
    PUSHPULL_CHECK(worker.value() < kWorkersMax);
    bits.resize(worker.value() / 8 + 1);
    bits.back() = static_cast<uint8_t>(bits.back() | 1U << worker.value() % 8);
  }
  writer.Put(static_cast<uint16_t>(bits.size()));
  for (const uint8_t byte : bits) writer.Put(byte);
}

bool GetWorkerBits(ByteReader& reader, std::vector<WorkerId>& workers) {
  const auto count = reader.Get<uint16_t>();
  if (count > kWorkersMax / 8) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const auto byte = reader.Get<uint8_t>();
    for (uint32_t bit = 0; bit < 8; ++bit) {
      if ((byte >> bit) % 2 != 0) workers.emplace_back(i * 8 + bit);
    }
  }
  return reader.ok();
}

}  // namespace pushpull
