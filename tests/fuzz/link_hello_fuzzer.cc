// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as what a rank says when it connects, and as the header of a call: no crash, what is
// refused says why, and what is accepted reads back as it was written.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/collective/call_header.h"
#include "runtime/collective/link_hello.h"

namespace {

template <typename Message>
void CheckSaid(const absl::StatusOr<Message>& message) {
  PUSHPULL_CHECK(message.ok() || !message.status().message().empty());
}

void CheckHello(const pushpull::LinkHello& hello) {
  const absl::StatusOr<pushpull::LinkHello> again =
      pushpull::DecodeLinkHello(pushpull::EncodeLinkHello(hello));
  PUSHPULL_CHECK(again.ok() && again->group == hello.group && again->from == hello.from &&
                 again->shm.has_value() == hello.shm.has_value());
  const pushpull::LinkExpectation expected = {.group = hello.group,
                                              .rank = hello.to % 4,
                                              .ranks = 4,
                                              .is_shm = true,
                                              .connected = std::vector<bool>(4)};
  const absl::Status admitted = pushpull::CheckLinkHello(hello, expected);
  PUSHPULL_CHECK(admitted.ok() ? hello.from < 4 : !admitted.message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const absl::StatusOr<pushpull::LinkHello> hello = pushpull::DecodeLinkHello(bytes);
  CheckSaid(hello);
  if (hello.ok()) CheckHello(*hello);
  CheckSaid(pushpull::DecodeLinkWelcome(bytes));
  CheckSaid(pushpull::DecodeLinkReady(bytes));
  const absl::Status agreed = pushpull::CheckCallHeader({.sequence = 1}, bytes);
  PUSHPULL_CHECK(agreed.ok() || !agreed.message().empty());
  return 0;
}
