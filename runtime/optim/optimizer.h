// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps over spans: the update that turns one version of a chunk into the next. Pure: the
// caller keeps values, state and step counts (runtime/store). Scalars are computed in float64,
// elements in float32, each alone, so a tensor gives the same bits however it is cut into chunks,
// in place or not, and on every member of a replica set (runtime/tensor/reduce.h has the details).
//
// In the formulas: g gradient after scaling, p value, l learning rate, w weight decay, t step; all
// element by element. Results are those of PyTorch 1.13's torch.optim classes of the same name, up
// to rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace pushpull {

// The numbers travel in messages and stay what they are.
enum class OptimizerKind : uint8_t {
  // No optimizer: p = g. For workers that keep their own; a pull then returns the reduced gradient.
  kSum = 1,

  // g += w p;  b = momentum b + g;  p -= l b, with nesterov p -= l (g + momentum b).
  // Source: Polyak, 1964, and for Nesterov Sutskever, Martens, Dahl, Hinton, ICML 2013, equations 1
  // to 4, in PyTorch's form: l multiplies at the end, so b does not change when l does. Dampening
  // is 0.
  kSgd = 2,

  // g += w p;  s += g^2;  p -= l g / (sqrt(s) + epsilon).
  // Source: Duchi, Hazan, Singer, JMLR 12 (2011), figure 1 with a diagonal matrix; epsilon outside
  // of the root as in PyTorch. s starts at 0, no decay of l.
  kAdagrad = 3,

  // g += w p;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  // p -= l (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
  // Source: Kingma, Ba, ICLR 2015 (arXiv:1412.6980), algorithm 1, computed in the order given at
  // the end of its section 2, which saves a division; w as in PyTorch (L2, through the moments).
  kAdam = 4,

  // p *= 1 - l w, then as kAdam without g += w p.
  // Source: Loshchilov, Hutter, ICLR 2019 (arXiv:1711.05101), algorithm 2; the decay is multiplied
  // by l as in PyTorch.
  kAdamW = 5,
};

// Whether the number, as it came from a peer, is one of the above.
constexpr bool IsKnown(OptimizerKind kind) {
  return kind >= OptimizerKind::kSum && kind <= OptimizerKind::kAdamW;
}

// A kind and its settings. Defaults are PyTorch's where several kinds share one; where they do not,
// they are noted.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSum;
  double learning_rate = 0;  // above 0 except with kSum, which ignores it
  double momentum = 0;       // kSgd only; 0 to below 1
  bool nesterov = false;     // kSgd only; needs momentum
  double weight_decay = 0;   // not with kSum; at least 0 (PyTorch's AdamW: 0.01)
  double beta1 = 0.9;        // kAdam, kAdamW; 0 to below 1
  double beta2 = 0.999;      // kAdam, kAdamW; 0 to below 1
  double epsilon = 1e-8;     // kAdagrad, kAdam, kAdamW; at least 1e-30 (PyTorch's Adagrad: 1e-10)

  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

// kInvalidArgument names the first field that is wrong for the kind, as "momentum: must be ...".
// Do not retry. The functions below need a spec that passed.
absl::Status Validate(const OptimizerSpec& spec);

// "sgd"; "optimizer 9" for a number that is none.
std::string ToString(OptimizerKind kind);

// "sgd(learning_rate=0.1, momentum=0.9)": the kind and the settings that act on it.
std::string ToString(const OptimizerSpec& spec);

// How many float32 of state the optimizer keeps for each element: 0, 1 or 2.
size_t StateFloatsPerValue(const OptimizerSpec& spec);

struct StepInput {
  double learning_rate = 0;   // in force for this step, instead of the spec's
  uint64_t step = 1;          // 1 for the first update of this chunk, 2 for the second, ...
  double gradient_scale = 1;  // multiplies the gradient first: the mean's division
};

// Does one update.
//
// gradient:  [n] float32, read only; must not overlap the others.
// value_in:  [n] float32, the value before.
// value_out: [n] float32, the value after. The memory of value_in exactly, or apart from it.
// state:     [StateFloatsPerValue, n] float32, row-major, updated in place; zeros before step 1.
//            Kept by the caller with the chunk: it belongs to these n elements in this order.
//
// Lengths that disagree are a broken invariant. NaN in an element's gradient makes its value NaN.
// Where g^2 exceeds float32 (|g| above 1.8e19), the squares that Adagrad and Adam keep become
// infinite and the element stands still, as in PyTorch. Allocates nothing, never blocks.
// Thread-compatible.
void ApplyOptimizer(const OptimizerSpec& spec,
                    const StepInput& input,
                    std::span<const float> gradient,
                    std::span<const float> value_in,
                    std::span<float> value_out,
                    std::span<float> state);

}  // namespace pushpull
