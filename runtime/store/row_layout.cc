// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_layout.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/tensor/codec.h"
#include "runtime/tensor/reduction.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

// Empty: nothing is wrong.
std::string WrongWith(const TensorSpec& spec) {
  if (spec.dims.size() != 2 || spec.dims[0] < 1 || spec.dims[1] < 1 || spec.dims[1] > kRowDimMax) {
    return absl::StrCat("shape ",
                        DimsToString(spec.dims),
                        " must be [rows, dim], both above 0, and dim at most ",
                        kRowDimMax);
  }
  if (spec.optimizer.kind == OptimizerKind::kSum)
    return "needs an optimizer on the servers: sum has none";
  if (spec.reduction != Reduction::kMean && spec.reduction != Reduction::kSum)
    return absl::StrCat("needs reduction mean or sum, which is ", ToString(spec.reduction));
  if (spec.codec != Codec::kNone)
    return absl::StrCat("needs codec none, which is ", ToString(spec.codec));
  if (spec.dtype != DType::kFloat32)
    return absl::StrCat("needs dtype float32, which is ", ToString(spec.dtype));
  if (spec.clip_norm != 0)
    return absl::StrCat("needs clip_norm 0, which is ", spec.clip_norm, ": rows are not clipped");
  const RowSpec& rows = *spec.rows;
  if (!IsKnown(rows.init))
    return absl::StrCat("initializer ", static_cast<int>(rows.init), " is not known");
  const bool needs_scale = rows.init != RowInit::kZeros;
  if (!std::isfinite(rows.scale) || (needs_scale ? rows.scale <= 0 : rows.scale != 0)) {
    return absl::StrCat("the initializer's scale must be ",
                        needs_scale ? "above 0 and finite" : "0 with zeros",
                        ", is ",
                        rows.scale);
  }
  return "";
}

}  // namespace

absl::Status CheckRows(const TensorSpec& spec) {
  if (!spec.rows) return absl::OkStatus();
  const std::string wrong = WrongWith(spec);
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", spec.name, "\", row-sparse: ", wrong));
}

uint64_t NumRowChunks(const TensorSpec& spec) {
  const uint64_t per_chunk = kRowChunkBytes / SparseRowBytes(RowDim(spec));
  const auto rows = static_cast<uint64_t>(spec.dims.front());
  return rows / per_chunk + (rows % per_chunk == 0 ? 0 : 1);
}

absl::StatusOr<uint64_t> PlacedBytes(const TensorSpec& spec) {
  absl::StatusOr<uint64_t> bytes = NumBytes(spec.dims, MasterOf(spec.dtype));
  if (!bytes.ok() || !spec.rows) return bytes;
  if (absl::Status fits = CheckRows(spec); !fits.ok()) return fits;
  return NumRowChunks(spec) * kChunkBytes;
}

}  // namespace pushpull
