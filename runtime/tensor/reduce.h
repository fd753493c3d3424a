// SPDX-License-Identifier: Apache-2.0
//
// The kernels that sum contributions, vectorized for the machine they run on. The store decides
// which kernel a reduction needs.
//
// Every function gives the same bits for the same input, whatever the memory's alignment, the
// thread and the machine's vector instructions: each element is computed alone (SumOfSquares adds
// them in a fixed order), a product is rounded before it is added (no fused multiply-add), and
// denormals are kept. So members of a replica set on different machines stay equal. Two exceptions:
// the payload and sign of a NaN result, and FastSumOfSquares. Spans of one call have equal lengths
// (checked) and do not overlap. Nothing allocates or blocks. Thread-compatible.
#pragma once

#include <span>

namespace pushpull {

// accumulator += scale * x, each product rounded to float32 first; NaN and infinities propagate.
// Returns whether all results are finite: finite numbers can have an infinite sum, and another
// process may change the memory of `x`.
bool AddScaled(std::span<float> accumulator, std::span<const float> x, float scale);

// accumulator = the smaller (larger) of accumulator and x. NaN if either is NaN. -0 and +0 are
// equal: the accumulator's stays.
void Minimum(std::span<float> accumulator, std::span<const float> x);
void Maximum(std::span<float> accumulator, std::span<const float> x);

// x *= scale.
void Scale(std::span<float> x, float scale);

// Whether no element is NaN or infinite; true for no elements.
bool AllFinite(std::span<const float> x);

// The sum of the squares of all elements, squared and added in double; 0 for no elements.
double SumOfSquares(std::span<const float> x);

// The same, added in the order that suits the machine: its last bits may differ between machines.
double FastSumOfSquares(std::span<const float> x);

}  // namespace pushpull
