// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/worker_charges.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/exchange/exchange.h"

namespace pushpull {

absl::Status WorkerCharges::CheckRoom(const std::string& what,
                                      WorkerId worker,
                                      uint64_t bytes) const {
  if (BytesOf(worker) + bytes <= kExchangeBytesPerWorkerMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what,
                                                   ": ",
                                                   ToString(worker),
                                                   " has ",
                                                   BytesOf(worker),
                                                   " bytes here and sends ",
                                                   bytes,
                                                   " more; a lane keeps ",
                                                   kExchangeBytesPerWorkerMax,
                                                   " of a worker"));
}

void WorkerCharges::Remove(WorkerId worker, uint64_t bytes) {
  if (bytes == 0) return;
  const auto it = bytes_.find(worker);
  PUSHPULL_CHECK(it != bytes_.end() && it->second >= bytes);
  it->second -= bytes;
  if (it->second == 0) bytes_.erase(it);
}

uint64_t WorkerCharges::BytesOf(WorkerId worker) const {
  const auto it = bytes_.find(worker);
  return it == bytes_.end() ? 0 : it->second;
}

}  // namespace pushpull
