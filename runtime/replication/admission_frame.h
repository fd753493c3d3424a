// SPDX-License-Identifier: Apache-2.0
//
// An admission in the meta of a frame that has the flag kFlagAdmission: of pushes and fetches at
// its beginning, of publications behind the timing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/consistency/admission.h"

namespace pushpull {

std::vector<std::byte> EncodeAdmission(const Admission& admission);

// Takes it off the front of `meta`. kDataLoss: too short, or more workers than there can be.
absl::StatusOr<Admission> TakeAdmission(std::span<const std::byte>& meta);

}  // namespace pushpull
