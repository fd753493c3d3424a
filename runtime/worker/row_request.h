// SPDX-License-Identifier: Apache-2.0
//
// A program's request on rows of a row-sparse tensor, cut into the tensor's chunks: what is sent to
// each, and where its answer goes (docs/decisions/0056-row-sparse-tensors.md). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// The properties of a row-sparse tensor that are needed to cut requests.
struct RowTensor {
  std::string name;
  uint64_t rows = 0;  // as registered
  size_t dim = 0;
  uint64_t num_chunks = 0;
};

// `spec` has passed CheckRows.
RowTensor RowTensorOf(const TensorSpec& spec);

struct RowRequest {
  // Row `from` of the answer goes to row `to` of `out`.
  struct Place {
    uint32_t from = 0;
    uint64_t to = 0;
  };
  // The part of one chunk.
  struct Part {
    std::shared_ptr<const HostBuffer> sent;  // rows, or a pull's keys; null: nothing
    size_t answer_bytes = 0;
    std::vector<Place> places = {};
  };

  std::vector<Part> parts;  // one per chunk
  size_t dim = 0;
  std::span<float> out = {};     // for a pull; the caller's
  bool asks_every_chunk = true;  // false: only those with something to send

  bool Asks(size_t part) const { return asks_every_chunk || parts[part].sent != nullptr; }
  // Writes an answer of chunk `part`, answer_bytes long, to `out`.
  void Store(size_t part, std::span<const std::byte> answer) const;
};

// A push of these rows. If a key occurs several times, its gradients are added in order. Reads both
// arguments during the call.
//
// keys: [n], any order. gradient: [n, dim].
// kInvalidArgument: sizes differ. kResourceExhausted: a chunk would get more rows than it can hold,
// or no memory. Each names the tensor.
absl::StatusOr<std::shared_ptr<const RowRequest>> CutRowPush(const RowTensor& tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<const float> gradient);

// A pull of these rows into `out`, [n, dim], in the order of the keys. Errors as for CutRowPush.
absl::StatusOr<std::shared_ptr<const RowRequest>> CutRowPull(const RowTensor& tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<float> out);

// The initial rows 0 to n - 1, [n, dim]. Errors as for CutRowPush.
absl::StatusOr<std::shared_ptr<const RowRequest>> CutFirstRows(const RowTensor& tensor,
                                                               std::span<const float> values);

// Asks every chunk for its version and no rows.
std::shared_ptr<const RowRequest> AskForVersions(const RowTensor& tensor);

}  // namespace pushpull
