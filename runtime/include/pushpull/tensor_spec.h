// SPDX-License-Identifier: Apache-2.0
//
// The description of a tensor, the same at the coordinator, on every server and in every worker of
// a job. The enumerations' values are part of frames, messages and checkpoints and never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// The type of a tensor's elements in the workers' memory and on the wire: host byte order in
// memory, little-endian on the wire. Servers keep values and optimizer state as float32 (the master
// values), and add gradients in float32; what workers receive is rounded to nearest, ties to even.
enum class DType : uint8_t {
  kFloat32 = 1,   // IEEE 754 binary32
  kFloat16 = 2,   // IEEE 754 binary16; values above 65,504 become infinite. No codec
  kBFloat16 = 3,  // the upper half of a float32. No codec
};

// How the contributions of a step become one gradient.
enum class Reduction : uint8_t {
  kMean = 1,  // weighted by samples: sum of weight x gradient over sum of weight
  kSum = 2,
  kMin = 3,  // element by element
  kMax = 4,
  // Only in mode Sync, with the optimizer Sum, no codec and no clip_norm:
  kProd = 5,
  kAnd = 6,  // logical: 1 if all are nonzero, else 0
  kOr = 7,   // 1 if any is nonzero, else 0
};

// How gradients are encoded on the wire. They are decoded before they are added, so sums are always
// float32; values are never encoded.
enum class Codec : uint8_t {
  kNone = 0,      // float32, as in memory
  kFloat16 = 1,   // IEEE 754 binary16: 11 bits of precision, up to 65,504; round to nearest even
  kBFloat16 = 2,  // the upper half of a float32: 8 bits of precision, the same range; likewise
  kInt8 = 3,      // 8 bits, one scale for each 256 values; stochastic rounding
  // With error feedback: what a push leaves out is added to the tensor's next gradient.
  kTopK = 4,    // the largest 1 % of the values, with their indices
  kOneBit = 5,  // signs, and two means for each 1,024 values: of those above 0 and of the others
};

// In the formulas: g gradient after scaling, p value, l learning rate, w weight decay, t step; all
// element by element. Results match those of the torch.optim classes of the same name in PyTorch
// 1.13, up to rounding.
enum class OptimizerKind : uint8_t {
  // No optimizer: p = g. For workers that run their own; a pull returns the reduced gradient.
  kSum = 1,

  // g += w p;  b = momentum b + g;  p -= l b, with nesterov p -= l (g + momentum b).
  // Source: Polyak, 1964, and for Nesterov Sutskever, Martens, Dahl, Hinton, ICML 2013, equations 1
  // to 4, in PyTorch's form: l multiplies at the end, so b does not change when l does. Dampening
  // is 0.
  kSgd = 2,

  // g += w p;  s += g^2;  p -= l g / (sqrt(s) + epsilon).
  // Source: Duchi, Hazan, Singer, JMLR 12 (2011), figure 1 with a diagonal matrix; epsilon outside
  // the root as in PyTorch. s starts at 0; l does not decay.
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

// A kind and its settings. Defaults are PyTorch's where all kinds share one; exceptions are noted.
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

// The number of float32 values of optimizer state for each element: 0 (kSum, kSgd without
// momentum), 1 (kSgd with momentum: b; kAdagrad: s) or 2 (kAdam, kAdamW: m, then v).
size_t StateFloatsPerValue(const OptimizerSpec& spec);

// The value of a row that nobody has pushed yet. It depends only on seed, key and column, so it is
// the same on every server, and again after the row has been evicted.
enum class RowInit : uint8_t {
  kZeros = 1,
  kUniform = 2,  // from -scale to scale
  kNormal = 3,   // mean 0, standard deviation scale
};

// A row-sparse tensor: rows with 64-bit keys, of which a step touches a few. A row takes no memory
// before its first push. The optimizer is applied only to the rows that a step pushes: the others
// keep their momentum and moments, and their weights do not decay. Adam and AdamW follow
// torch.optim.SparseAdam: t counts the tensor's steps, and epsilon is added to the root of v before
// the correction: p -= l sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon).
struct RowSpec {
  RowInit init = RowInit::kZeros;
  double scale = 0;  // above 0 with kUniform and kNormal, else 0
  uint64_t seed = 0;
  // Above 0: a row that no step has pushed for this many steps is evicted, with its optimizer
  // state. Rows are checked every evict_after / 8 steps, so a row may stay that much longer.
  uint64_t evict_after = 0;

  friend bool operator==(const RowSpec&, const RowSpec&) = default;
};

// A tensor as a worker registers it. Workers that register the same name must agree in all fields.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> dims;  // outermost first, row-major; empty: a scalar
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kMean;
  OptimizerSpec optimizer;
  Codec codec = Codec::kNone;
  // 0: no clipping. The gradients of all tensors with a clip_norm above 0, which must be the same
  // in all of them, are scaled by min(1, clip_norm / (norm + 1e-6)), where norm is the joint L2
  // norm of their reduced gradients of the step (torch.nn.utils.clip_grad_norm_). Every worker
  // pushes all of these tensors in every step. Mode Sync only, without backup workers or gated
  // steps.
  double clip_norm = 0;
  // A row-sparse tensor: `dims` is [rows, dim], where `rows` is the expected number of rows (keys
  // may be any numbers) and dim is at most 2,048. For Job::PushRows and Job::PullRows. Requires
  // mode Sync without backup workers or gated steps, an optimizer on the servers, reduction mean or
  // sum, no codec and no clip_norm.
  std::optional<RowSpec> rows = {};
};

}  // namespace pushpull
