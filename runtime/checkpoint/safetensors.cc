// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status_macros.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

static_assert(std::endian::native == std::endian::little);

// Read and written at a time: whole chunks.
constexpr uint64_t kPieceBytes = 16 * kChunkBytes;

using Sink = absl::FunctionRef<absl::Status(std::span<const std::byte>)>;

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> dims;
  uint64_t bytes = 0;
  std::function<absl::Status(Sink)> write;  // all of them
};

std::string DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
  }
  return "";
}

std::string JsonText(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned>(c));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string Header(const CheckpointInfo& info, const std::vector<Entry>& entries) {
  // "format" says to readers of PyTorch models that they may have the tensors.
  std::string json = absl::StrCat(R"({"__metadata__":{"format":"pt","pushpull.job":)",
                                  JsonText(absl::StrCat(info.job_namespace, "/", info.job)),
                                  R"(,"pushpull.step":")",
                                  info.step.value(),
                                  "\"}");
  uint64_t offset = 0;
  for (const Entry& entry : entries) {
    absl::StrAppend(&json,
                    ",",
                    JsonText(entry.name),
                    R"(:{"dtype":")",
                    entry.dtype,
                    R"(","shape":[)",
                    absl::StrJoin(entry.dims, ","),
                    R"(],"data_offsets":[)",
                    offset,
                    ",",
                    offset + entry.bytes,
                    "]}");
    offset += entry.bytes;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

// Calls `read` for pieces of so many elements, until all are read.
absl::Status Stream(uint64_t num_elements,
                    size_t element_bytes,
                    absl::FunctionRef<absl::Status(uint64_t, std::span<std::byte>)> read,
                    Sink sink) {
  const uint64_t piece = kPieceBytes / sizeof(float);
  PUSHPULL_ASSIGN_OR_RETURN(
      HostBuffer buffer, HostBuffer::Uninitialized(std::min(piece, num_elements) * element_bytes));
  for (uint64_t first = 0; first < num_elements; first += piece) {
    const std::span<std::byte> part =
        buffer.bytes().first(std::min(piece, num_elements - first) * element_bytes);
    PUSHPULL_RETURN_IF_ERROR(read(first, part));
    PUSHPULL_RETURN_IF_ERROR(sink(part));
  }
  return absl::OkStatus();
}

std::span<float> Floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

template <typename Number>
Entry EntryOf(const std::string& name,
              const std::string& dtype,
              const std::vector<int64_t>& dims,
              const std::shared_ptr<const std::vector<Number>>& numbers) {
  return {.name = name,
          .dtype = dtype,
          .dims = dims,
          .bytes = numbers->size() * sizeof(Number),
          .write = [numbers](Sink sink) { return sink(std::as_bytes(std::span(*numbers))); }};
}

// The names that torch.optim has for the state of the servers' optimizers.
std::vector<std::string> StateNames(OptimizerKind kind) {
  if (kind == OptimizerKind::kSgd) return {"momentum_buffer"};
  if (kind == OptimizerKind::kAdagrad) return {"sum"};
  return {"exp_avg", "exp_avg_sq"};
}

// Lists what is exported. Thread-confined.
class Entries {
 public:
  Entries(const Checkpoint& checkpoint, bool with_optimizer)
      : checkpoint_(checkpoint), with_optimizer_(with_optimizer) {}

  absl::StatusOr<std::vector<Entry>> List() {
    for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
      const TensorSpec& spec = tensor.spec;
      if (tensor.role == TensorRole::kInternal) continue;
      if (tensor.role == TensorRole::kOptimizerState) {
        const std::string name = absl::StrCat("optimizer.", tensor.owner, ".", tensor.key);
        if (with_optimizer_) PUSHPULL_RETURN_IF_ERROR(AddValue(spec, name));
      } else if (spec.rows) {
        PUSHPULL_RETURN_IF_ERROR(AddRows(spec));
      } else {
        PUSHPULL_RETURN_IF_ERROR(AddValue(spec, spec.name));
        if (with_optimizer_) PUSHPULL_RETURN_IF_ERROR(AddState(spec));
      }
    }
    return std::move(entries_);
  }

 private:
  absl::Status AddValue(const TensorSpec& spec, std::string name) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t bytes, NumBytes(spec.dims, spec.dtype));
    const size_t element = DTypeBytes(spec.dtype);
    entries_.push_back({.name = std::move(name),
                        .dtype = DTypeName(spec.dtype),
                        .dims = spec.dims,
                        .bytes = bytes,
                        .write = [from = &checkpoint_, spec, bytes, element](Sink sink) {
                          const auto read = [&](uint64_t first, std::span<std::byte> out) {
                            return from->Read(spec.name, first, TensorValues(spec.dtype, out));
                          };
                          return Stream(bytes / element, element, read, sink);
                        }});
    return absl::OkStatus();
  }

  absl::Status AddState(const TensorSpec& spec) {
    const size_t rows = StateFloatsPerValue(spec.optimizer);
    if (rows == 0) return absl::OkStatus();
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t bytes, NumBytes(spec.dims, DType::kFloat32));
    const std::vector<std::string> names = StateNames(spec.optimizer.kind);
    for (size_t row = 0; row < rows; ++row) {
      entries_.push_back({.name = StateName(spec, names[row]),
                          .dtype = "F32",
                          .dims = spec.dims,
                          .bytes = bytes,
                          .write = [from = &checkpoint_, name = spec.name, bytes, row](Sink sink) {
                            const auto read = [&](uint64_t first, std::span<std::byte> out) {
                              return from->ReadOptimizerState(name, row, first, Floats(out));
                            };
                            return Stream(bytes / sizeof(float), sizeof(float), read, sink);
                          }});
    }
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t updates, checkpoint_.Updates(spec.name));
    AddStep(spec, updates);
    return absl::OkStatus();
  }

  absl::Status AddRows(const TensorSpec& spec) {
    PUSHPULL_ASSIGN_OR_RETURN(CheckpointRows rows, checkpoint_.ReadRows(spec.name));
    const auto num_rows = static_cast<int64_t>(rows.keys.size());
    const int64_t dim = spec.dims.back();
    const auto state_rows = static_cast<int64_t>(StateFloatsPerValue(spec.optimizer));
    entries_.push_back(
        EntryOf(absl::StrCat(spec.name, ".keys"),
                "U64",
                {num_rows},
                std::make_shared<const std::vector<uint64_t>>(std::move(rows.keys))));
    entries_.push_back(EntryOf(absl::StrCat(spec.name, ".rows"),
                               "F32",
                               {num_rows, dim},
                               std::make_shared<const std::vector<float>>(std::move(rows.values))));
    if (!with_optimizer_ || state_rows == 0) return absl::OkStatus();
    entries_.push_back(EntryOf(StateName(spec, "states"),
                               "F32",
                               {num_rows, state_rows, dim},
                               std::make_shared<const std::vector<float>>(std::move(rows.states))));
    AddStep(spec, rows.updates);
    return absl::OkStatus();
  }

  void AddStep(const TensorSpec& spec, uint64_t updates) {
    entries_.push_back(EntryOf(StateName(spec, "step"),
                               "U64",
                               {},
                               std::make_shared<const std::vector<uint64_t>>(1, updates)));
  }

  static std::string StateName(const TensorSpec& spec, absl::string_view key) {
    return absl::StrCat("optimizer.", spec.name, ".", key);
  }

  const Checkpoint& checkpoint_;
  const bool with_optimizer_;
  std::vector<Entry> entries_;
};

absl::Status Write(const CheckpointInfo& info,
                   const std::vector<Entry>& entries,
                   WritableFile& file) {
  const std::string header = Header(info, entries);
  const uint64_t length = header.size();
  PUSHPULL_RETURN_IF_ERROR(file.Append(
      std::array{std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(header))}));
  for (const Entry& entry : entries) {
    PUSHPULL_RETURN_IF_ERROR(entry.write([&file](std::span<const std::byte> bytes) {
      return bytes.empty() ? absl::OkStatus() : file.Append(std::array{bytes});
    }));
  }
  return file.Sync();
}

}  // namespace

absl::Status ExportSafetensors(const Checkpoint& checkpoint,
                               FileSystem& files,
                               const ExportOptions& options) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<Entry> entries,
                            Entries(checkpoint, options.with_optimizer).List());
  const std::string fresh = absl::StrCat(options.file, ".new");
  absl::Status written;
  {
    PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.CreateFile(fresh));
    written = Write(checkpoint.info(), entries, *file);
  }
  if (written.ok()) written = files.Rename(fresh, options.file);
  if (!written.ok()) files.RemoveFile(fresh).IgnoreError();  // only to free its space
  return written;
}

}  // namespace pushpull
