// SPDX-License-Identifier: Apache-2.0
//
// The kernels that sum contributions, vectorised for the machine they run on. Which kernel a
// reduction needs is decided by the store.
//
// Every function gives the same bits for the same input whatever the alignment of the memory, the
// thread, and the vector instructions of the machine: each element is computed alone (SumOfSquares
// adds them in one order; FastSumOfSquares is the other exception), a product is rounded before it
// is added (no fused multiply-add), denormals are kept. So members of a replica set on different
// machines stay equal. The one exception: where a result is NaN, its payload and sign are the
// machine's. Spans of one call have equal lengths (checked) and do not overlap. Nothing is
// allocated, nothing blocks. Thread-compatible.
#pragma once

#include <span>

namespace pushpull {

// accumulator += scale * x, each product rounded to float32 first; NaN and infinities propagate.
// Returns whether all results are finite: numbers that are can have a sum that is not, and `x` may
// be memory that another process changes.
bool AddScaled(std::span<float> accumulator, std::span<const float> x, float scale);

// accumulator = the smaller (larger) of accumulator and x. NaN where either is NaN. -0 and +0 are
// equal, the accumulator's stays.
void Minimum(std::span<float> accumulator, std::span<const float> x);
void Maximum(std::span<float> accumulator, std::span<const float> x);

// x *= scale.
void Scale(std::span<float> x, float scale);

// Whether no element is NaN or infinite; true for no elements.
bool AllFinite(std::span<const float> x);

// The sum of the squares of all elements, squared and added in double; 0 for no elements.
double SumOfSquares(std::span<const float> x);

// The same, added in the order that suits the machine: its last bits may differ between two.
double FastSumOfSquares(std::span<const float> x);

}  // namespace pushpull
