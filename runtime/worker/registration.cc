// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/registration.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/shape.h"
#include "runtime/worker/use_order.h"

namespace pushpull {
namespace {

constexpr absl::string_view kReservedPrefix = "pushpull.";

absl::Status CheckState(const TensorRegistration& tensor) {
  const size_t rows = StateFloatsPerValue(tensor.spec.optimizer);
  const size_t values = tensor.value.bytes().size() / DTypeBytes(tensor.spec.dtype);
  const size_t expected = rows * values;
  const size_t given = tensor.optimizer_state.size();
  if (given == expected || (given == 0 && tensor.updates == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 tensor.spec.name,
                                                 "\": a state of ",
                                                 given,
                                                 " floats after ",
                                                 tensor.updates,
                                                 " updates; the optimizer has ",
                                                 rows,
                                                 " for each of ",
                                                 values,
                                                 " values"));
}

absl::Status CheckValue(const TensorRegistration& tensor) {
  const TensorSpec& spec = tensor.spec;
  const bool is_left_to_init = spec.rows && tensor.value.empty();
  if (is_left_to_init) return absl::OkStatus();
  const absl::StatusOr<uint64_t> bytes = NumBytes(spec.dims, spec.dtype);
  const DType given = tensor.value.dtype();
  if (bytes.ok() && *bytes == tensor.value.bytes().size() && given == spec.dtype)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"",
                   spec.name,
                   "\": shape ",
                   DimsToString(spec.dims),
                   " of ",
                   ToString(spec.dtype),
                   " does not fit a value of ",
                   IsKnown(given) ? tensor.value.bytes().size() / DTypeBytes(given) : 0,
                   " ",
                   ToString(given)));
}

}  // namespace

absl::StatusOr<std::vector<RegisteredTensor>> CheckTensors(
    std::span<const TensorRegistration> tensors) {
  std::vector<RegisteredTensor> checked;
  for (const TensorRegistration& tensor : tensors) {
    const TensorSpec& spec = tensor.spec;
    if (absl::StartsWith(spec.name, kReservedPrefix)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", spec.name, "\": names that begin with ", kReservedPrefix, " are reserved"));
    }
    if (!IsKnown(spec.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", spec.name, "\": ", ToString(spec.dtype), " is not known"));
    }
    PUSHPULL_RETURN_IF_ERROR(CheckRows(spec));
    if (spec.rows && (!tensor.optimizer_state.empty() || tensor.updates != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", spec.name, "\" is row-sparse: its rows' optimizer state cannot be given"));
    }
    PUSHPULL_RETURN_IF_ERROR(CheckValue(tensor));
    PUSHPULL_RETURN_IF_ERROR(CheckState(tensor));
    const uint8_t place = PriorityOfPlace(checked.size(), tensors.size());
    RegisteredTensor& added = checked.emplace_back(RegisteredTensor{spec,
                                                                    tensor.value,
                                                                    tensor.priority.value_or(place),
                                                                    tensor.keeps_value,
                                                                    tensor.optimizer_state,
                                                                    tensor.updates});
    if (!spec.rows) continue;
    PUSHPULL_ASSIGN_OR_RETURN(added.first_rows,
                              CutFirstRows(RowTensorOf(spec), tensor.value.floats()));
    added.value = {};
  }
  return checked;
}

std::vector<TensorSpec> Registration::specs() const {
  std::vector<TensorSpec> specs;
  for (const RegisteredTensor& tensor : tensors_) specs.push_back(tensor.spec);
  return specs;
}

void Registration::SetPlaces(const std::vector<PlacedTensor>& job) {
  std::map<std::string, size_t> place_by_name;
  for (size_t i = 0; i < job.size(); ++i) place_by_name[job[i].spec.name] = i;
  for (const RegisteredTensor& tensor : tensors_)
    places_.push_back(place_by_name.at(tensor.spec.name));
}

std::vector<TensorRequest> Registration::Requests(FrameType type,
                                                  Step step,
                                                  SteadyTime now,
                                                  std::function<void()> on_all_here) {
  values_missing_ = tensors_.size();
  const auto on_done = [self = shared_from_this(), on_all_here](const absl::Status& status) {
    if (!status.ok()) return self->pending_->Fail(status);
    if (--self->values_missing_ == 0) on_all_here();
  };
  std::vector<TensorRequest> requests;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const RegisteredTensor& tensor = tensors_[i];
    const std::span<std::byte> value = tensor.value.bytes();
    const bool is_initial = type == FrameType::kInit;
    requests.push_back(
        {.type = type,
         .tensor = places_[i],
         .step = step,
         .source = is_initial ? value : std::span<std::byte>(),
         .target = value,
         .initial_state =
             is_initial ? std::as_bytes(tensor.optimizer_state) : std::span<const std::byte>(),
         .updates = tensor.updates,
         .priority = tensor.priority,
         .is_kept = tensor.keeps_value,
         .ready = now,
         .pending = std::make_shared<PendingOperation>(
             type, std::make_shared<const std::string>(tensor.spec.name), step, on_done)});
    if (!tensor.first_rows) continue;
    requests.back().rows =
        type == FrameType::kInit ? tensor.first_rows : AskForVersions(RowTensorOf(tensor.spec));
  }
  return requests;
}

}  // namespace pushpull
