// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/step_accumulator.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/store/row_sum.h"
#include "runtime/tensor/element_reduce.h"
#include "runtime/tensor/reduce.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {

absl::StatusOr<std::span<std::byte>> StepAccumulator::BeginDirect(BufferPool& pool) {
  PUSHPULL_CHECK(is_empty());
  if (sum_.num_bytes() == 0) {
    PUSHPULL_ASSIGN_OR_RETURN(sum_, pool.Take(num_bytes_));
  }
  is_receiving_ = true;
  return sum_.bytes();
}

void StepAccumulator::FinishDirect(SumWeight weight) {
  PUSHPULL_CHECK(is_receiving_);
  is_receiving_ = false;
  // A contribution without samples has no part in a mean; the next one overwrites it.
  if (reduction_ == Reduction::kMean && weight.unit == 0) return;
  has_sum_ = true;
  first_weight_ = weight.unit;
  total_weight_ += weight.samples;
  noise_.Add(sum_.floats(), weight.samples);
  // and, or: even a single contribution is reduced to 0 and 1.
  const ElementOp op = OpOf(reduction_);
  if (op != ElementOp::kMean && NeedsFinish(op, 1))
    FinishReduction(ElementKind::kFloat32, op, 1, sum_.bytes());
}

void StepAccumulator::Add(HostBuffer& contribution, SumWeight weight) {
  PUSHPULL_CHECK(!is_receiving_ && (row_dim_ > 0 || contribution.num_bytes() == num_bytes_));
  if (reduction_ == Reduction::kMean && weight.unit == 0) return;
  if (has_sum_ && row_dim_ > 0) return AddRows(contribution, weight);
  if (!has_sum_) {
    std::swap(sum_, contribution);
    is_receiving_ = true;
    FinishDirect(weight);
    return;
  }
  AddTo(contribution.floats(), weight);
}

void StepAccumulator::AddNothing(SumWeight weight) {
  PUSHPULL_CHECK(!is_receiving_);
  total_weight_ += weight.samples;
}

void StepAccumulator::AddTo(std::span<const float> contribution, SumWeight weight) {
  PUSHPULL_CHECK(has_sum_ && contribution.size_bytes() == num_bytes_);
  if (reduction_ == Reduction::kMean && weight.unit == 0) return;
  switch (reduction_) {
    case Reduction::kMean:
      total_weight_ += weight.samples;
      noise_.Add(contribution, weight.samples);
      is_finite_ &=
          AddScaled(sum_.floats(), contribution, static_cast<float>(weight.unit / first_weight_));
      return;
    case Reduction::kSum:
      is_finite_ &= AddScaled(sum_.floats(), contribution, 1.0F);
      return;
    case Reduction::kMin:
      Minimum(sum_.floats(), contribution);
      break;
    case Reduction::kMax:
      Maximum(sum_.floats(), contribution);
      break;
    case Reduction::kProd:
    case Reduction::kAnd:
    case Reduction::kOr:
      Reduce(ElementKind::kFloat32, OpOf(reduction_), sum_.bytes(), std::as_bytes(contribution));
      break;
  }
  is_finite_ &= AllFinite(sum_.floats());
}

void StepAccumulator::AddRows(HostBuffer& contribution, SumWeight weight) {
  const double scale = reduction_ == Reduction::kMean ? weight.unit / first_weight_ : 1;
  if (reduction_ == Reduction::kMean) total_weight_ += weight.samples;
  sum_ = AddSparseRows(sum_, contribution, row_dim_, static_cast<float>(scale));
  const absl::StatusOr<SparseRows> rows = ParseSparseRows(sum_.bytes(), row_dim_);
  PUSHPULL_CHECK(rows.ok());
  is_finite_ &= AllFinite(rows->values);
}

bool StepAccumulator::BeginClip(bool counts) {
  if (clip_.squares) return false;
  clip_.squares = counts && has_sum_ ? SumOfSquares(sum()) * MeanScale() * MeanScale() : 0;
  return true;
}

HostBuffer StepAccumulator::TakeSum() {
  PUSHPULL_CHECK(has_sum_);
  Clear();
  return std::move(sum_);
}

void StepAccumulator::Clear() {
  has_sum_ = false;
  is_finite_ = true;
  total_weight_ = 0;
  clip_ = {};
  noise_.Drop();
}

}  // namespace pushpull
