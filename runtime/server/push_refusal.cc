// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/push_refusal.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::Status WhyRefused(const ChunkSlot& slot,
                        const MembershipView& membership,
                        const FrameHeader& push,
                        PushVerdict verdict) {
  if (slot.has_failed || !slot.state.is_initialized()) {
    return absl::FailedPreconditionError(absl::StrCat(
        slot.Name(),
        slot.has_failed ? " has had a value that is not finite" : " has no value yet"));
  }
  if (!(push.weight >= 0) || !std::isfinite(push.weight) || !std::isfinite(push.learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat(slot.Name(),
                                                   ": weight ",
                                                   push.weight,
                                                   " and learning rate ",
                                                   push.learning_rate,
                                                   " must be finite, 0 or more"));
  }
  if (verdict == PushVerdict::kNotYet) {
    return absl::UnavailableError(absl::StrCat(slot.Name(),
                                               ": the mode that begins with step ",
                                               push.step.value(),
                                               " is not in force yet"));
  }
  if (verdict == PushVerdict::kTooEarly) {
    return absl::InvalidArgumentError(absl::StrCat(slot.Name(),
                                                   ": push for step ",
                                                   push.step.value(),
                                                   ", its version is ",
                                                   slot.state.version().value()));
  }
  if (verdict == PushVerdict::kNotAdmitted && membership.active().consistency.gated) {
    // The leading chunk has closed the step without it: it is being given up, or hears of that.
    return absl::UnavailableError(absl::StrCat(
        slot.Name(), ": step ", push.step.value(), " is decided without ", ToString(push.worker)));
  }
  if (verdict == PushVerdict::kNotAdmitted) {
    return absl::InvalidArgumentError(absl::StrCat(slot.Name(),
                                                   ": ",
                                                   ToString(push.worker),
                                                   " has not been admitted to step ",
                                                   push.step.value()));
  }
  if (verdict != PushVerdict::kNotMember) return absl::OkStatus();
  const std::string who =
      absl::StrCat(ToString(push.worker), " is not a member in step ", push.step.value());
  // It may have heard of a view that lets it begin earlier, and this server is about to.
  return membership.StartsAfter(push.worker, push.incarnation, push.step)
             ? absl::UnavailableError(absl::StrCat(who, " yet"))
             : absl::AbortedError(absl::StrCat(who, ": rejoin"));
}

absl::Status CheckPayload(const ChunkSlot& slot, const FrameHeader& frame) {
  const Codec agreed = slot.tensor.spec.codec;
  if (frame.codec != Codec::kNone && (frame.codec != agreed || !IsPush(frame.type))) {
    return absl::InvalidArgumentError(absl::StrCat(slot.Name(),
                                                   ": comes with codec ",
                                                   ToString(frame.codec),
                                                   ", registered with ",
                                                   ToString(agreed)));
  }
  const size_t expected = EncodedBytes(frame.codec, slot.state.num_bytes() / sizeof(float));
  if (frame.payload_bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(slot.Name(), ": got ", frame.payload_bytes, " bytes, expected ", expected));
}

}  // namespace pushpull
