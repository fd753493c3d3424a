// SPDX-License-Identifier: Apache-2.0
//
// Structs <-> proto/pushpull/v1/control.proto for the messages by which a shard that nobody holds
// any more is made anew. Generated types are only named; control_proto.cc has the definitions.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/membership/control.h"

namespace pushpull {

namespace v1 {
class FromMember_ShardCopies;
class FromMember_Rebuilt;
class ToMember_CollectCopies;
class ToMember_OfferCopies;
class ToMember_RebuildShard;
}  // namespace v1

void ToProto(const ShardCopies& message, v1::FromMember_ShardCopies& out);
void ToProto(const Rebuilt& message, v1::FromMember_Rebuilt& out);
void ToProto(const CollectCopies& message, v1::ToMember_CollectCopies& out);
void ToProto(const OfferCopies& message, v1::ToMember_OfferCopies& out);
void ToProto(const RebuildShard& message, v1::ToMember_RebuildShard& out);

absl::StatusOr<FromMember> FromProto(const v1::FromMember_ShardCopies& wire);
absl::StatusOr<FromMember> FromProto(const v1::FromMember_Rebuilt& wire);
absl::StatusOr<ToMember> FromProto(const v1::ToMember_CollectCopies& wire);
absl::StatusOr<ToMember> FromProto(const v1::ToMember_OfferCopies& wire);
absl::StatusOr<ToMember> FromProto(const v1::ToMember_RebuildShard& wire);

}  // namespace pushpull
