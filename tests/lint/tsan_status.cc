// SPDX-License-Identifier: Apache-2.0
// Abseil's status for the thread sanitizer. Copies of a status share a representation with a
// reference count, which copying increments inline, in our instrumented code, and dropping
// decrements in libabsl_status, which is not instrumented: the sanitizer sees no order between one
// thread's last use and another one's delete, and reports a race. This definition, equal to the
// library's and instrumented, takes its place in the whole process.
#include <absl/status/status.h>

#include <atomic>
#include <cstdint>

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
