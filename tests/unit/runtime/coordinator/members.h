// SPDX-License-Identifier: Apache-2.0
//
// Members that the tests of the coordinator have in common.
#pragma once

#include "runtime/base/ids.h"
#include "runtime/membership/session.h"

namespace pushpull {

constexpr ServerId kA{0};
constexpr ServerId kB{1};
constexpr ServerId kC{2};
constexpr ServerId kD{3};
constexpr ShardId kShard{5};
constexpr WorkerId kAnn{0};
constexpr WorkerId kBob{1};
constexpr SessionId kServerSession{1};
constexpr SessionId kAnnSession{2};
constexpr SessionId kBobSession{3};

}  // namespace pushpull
