// SPDX-License-Identifier: Apache-2.0
//
// Abseil's status for the thread sanitizer. Copies of a status share one reference count. Copying
// increments it inline, in our instrumented code; dropping a copy decrements it in libabsl_status,
// which is not instrumented. So the sanitizer sees no order between one thread's last use and
// another one's delete, and reports a race. This definition does what the library's does, and takes
// its place in the whole process.
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* shared = RepToPointer(rep);
  if (shared->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete shared;
  }
}

ABSL_NAMESPACE_END
}  // namespace absl
