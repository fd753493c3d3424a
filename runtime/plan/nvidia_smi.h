// SPDX-License-Identifier: Apache-2.0
//
// What `nvidia-smi topo -m` and `nvidia-smi nvlink --status` print, as NVLinks. Pure.
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

// `matrix`: of `topo -m`. A cell NV12 means 12 links; whether they lead to the other GPU or to a
// switch it does not say: they lead to switches where every pair has the same number and a GPU
// would need more links than any has. `status`: of `nvlink --status`, for the bandwidth of a link;
// without one a link is taken for 25 GB/s, as of V100 and later.
SmiLinks ReadSmi(absl::string_view matrix, absl::string_view status);

}  // namespace pushpull
