// SPDX-License-Identifier: Apache-2.0
//
// The messages of control.h <-> their wire form in proto/pushpull/v1/control.proto. What comes from
// a peer is checked for form here (kinds that are known, lists of bounded length, ids in range);
// whether it makes sense for the job is the receiver's part.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/membership/control.h"

namespace pushpull {

namespace v1 {
class FromMember;
class ToMember;
}  // namespace v1

void ToProto(const FromMember& message, v1::FromMember& out);
void ToProto(const ToMember& message, v1::ToMember& out);

// kInvalidArgument says what is wrong with the message; its sender is broken, end the session.
absl::StatusOr<FromMember> FromProto(const v1::FromMember& message);
absl::StatusOr<ToMember> FromProto(const v1::ToMember& message);

}  // namespace pushpull
