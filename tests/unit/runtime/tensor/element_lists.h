// SPDX-License-Identifier: Apache-2.0
//
// Every kind of element and every operation, for tests of all of them.
#pragma once

#include "runtime/tensor/element_reduce.h"

namespace pushpull {

inline constexpr ElementOp kElementOps[] = {ElementOp::kMean,
                                            ElementOp::kSum,
                                            ElementOp::kMin,
                                            ElementOp::kMax,
                                            ElementOp::kProduct,
                                            ElementOp::kAnd,
                                            ElementOp::kOr};
inline constexpr ElementKind kElementKinds[] = {ElementKind::kUint8,
                                                ElementKind::kInt8,
                                                ElementKind::kInt32,
                                                ElementKind::kInt64,
                                                ElementKind::kFloat16,
                                                ElementKind::kBFloat16,
                                                ElementKind::kFloat32,
                                                ElementKind::kFloat64};

}  // namespace pushpull
