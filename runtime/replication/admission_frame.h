// SPDX-License-Identifier: Apache-2.0
//
// An admission in the meta of a frame with kFlagAdmission: first in pushes and fetches, after the
// timing in publications.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/consistency/admission.h"

namespace pushpull {

std::vector<std::byte> EncodeAdmission(const Admission& admission);

// Removes it from the front of `meta`. kDataLoss: too short, or more than kWorkersMax workers.
absl::StatusOr<Admission> TakeAdmission(std::span<const std::byte>& meta);

}  // namespace pushpull
