// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/cancellation.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "runtime/base/check.h"

namespace pushpull_operator {

Cancellation::Cancellation() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PUSHPULL_CHECK(event_.is_open());
}

void Cancellation::Cancel() {
  eventfd_write(event_.get(), 1);
}

bool Cancellation::is_cancelled() const {
  pollfd waiting{.fd = event_.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 1;
}

}  // namespace pushpull_operator
