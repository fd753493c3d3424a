// SPDX-License-Identifier: Apache-2.0
//
// Reads NVLinks from what `nvidia-smi topo -m` and `nvidia-smi nvlink --status` print. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/topology.h"

namespace pushpull {

struct SmiLinks {
  int gpus = 0;                   // rows of the matrix
  std::optional<NvLinks> nvlink;  // none: it shows no NVLink
  std::vector<std::string> notes;
};

// `matrix`: output of `topo -m`. A cell NV12 means 12 links, but not whether they lead to the other
// GPU or to a switch: switches are assumed if every pair has the same number and a GPU would need
// more links than any has. `status`: output of `nvlink --status`, for the bandwidth of a link;
// without it a link is assumed to have 25 GB/s, as on V100 and later.
SmiLinks ReadSmi(absl::string_view matrix, absl::string_view status);

}  // namespace pushpull
