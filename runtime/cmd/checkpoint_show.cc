// SPDX-License-Identifier: Apache-2.0
//
// `pushpull checkpoint show` and `export`: what one checkpoint has, and its tensors as a file for
// other programs. Both work on the files alone.
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include <nlohmann/json.hpp>

#include "pushpull/checkpoint.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/cmd/commands.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/shape.h"

namespace pushpull {
namespace {

struct ShowFlags {
  std::string path;
  bool is_json = false;
};

struct ExportFlags {
  std::string path;
  std::string format = "safetensors";
  std::string output;
  bool with_optimizer = false;
};

std::string WrittenAt(const CheckpointInfo& info) {
  return absl::FormatTime(
      "%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(info.written_at), absl::UTCTimeZone());
}

// How the table names what a tensor is.
std::string RoleText(const CheckpointTensor& tensor) {
  if (tensor.role == TensorRole::kInternal) return "kept by pushpull";
  if (tensor.role == TensorRole::kOptimizerState)
    return absl::StrCat(tensor.key, " of ", tensor.owner);
  return ToString(tensor.spec.optimizer);
}

const char* RoleName(TensorRole role) {
  if (role == TensorRole::kOptimizerState) return "optimizer state";
  return role == TensorRole::kInternal ? "internal" : "value";
}

absl::StatusOr<nlohmann::json> TensorsAsJson(const Checkpoint& checkpoint) {
  nlohmann::json all = nlohmann::json::array();
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t updates, checkpoint.Updates(tensor.spec.name));
    nlohmann::json json = {{"name", tensor.spec.name},
                           {"shape", tensor.spec.dims},
                           {"dtype", ToString(tensor.spec.dtype)},
                           {"role", RoleName(tensor.role)},
                           {"row_sparse", tensor.spec.rows.has_value()},
                           {"optimizer", ToString(tensor.spec.optimizer)},
                           {"updates", updates}};
    if (!tensor.owner.empty()) json.update({{"owner", tensor.owner}, {"key", tensor.key}});
    all.push_back(std::move(json));
  }
  return all;
}

absl::Status PrintJson(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  nlohmann::json json = {{"folder", info.folder},
                         {"job", info.job},
                         {"mode", info.mode},
                         {"step", info.step.value()},
                         {"written_at", info.written_at},
                         {"position", nullptr}};
  if (!info.job_namespace.empty()) json["namespace"] = info.job_namespace;
  if (const auto& position = checkpoint.position()) {
    json["position"] = {{"epoch", position->epoch},
                        {"position", position->position},
                        {"samples", position->source.num_samples},
                        {"batch", position->source.batch},
                        {"is_global_batch", position->source.is_global_batch}};
  }
  PUSHPULL_ASSIGN_OR_RETURN(json["tensors"], TensorsAsJson(checkpoint));
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return absl::OkStatus();
}

absl::Status PrintText(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const std::string job =
      info.job_namespace.empty() ? info.job : absl::StrCat(info.job_namespace, "/", info.job);
  std::printf("%s: step %lu of job %s, mode %s, written %s\n",
              Printable(info.folder).c_str(),
              info.step.value(),
              Printable(job).c_str(),
              info.mode.c_str(),
              WrittenAt(info).c_str());
  if (const auto& position = checkpoint.position()) {
    std::printf("epoch %lu, %lu of %lu samples done\n",
                position->epoch,
                position->position,
                position->source.num_samples);
  }
  std::printf("%-40s %-20s %-10s %8s  %s\n", "tensor", "shape", "dtype", "updates", "optimizer");
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t updates, checkpoint.Updates(tensor.spec.name));
    const std::string shape =
        absl::StrCat(DimsToString(tensor.spec.dims), tensor.spec.rows.has_value() ? " rows" : "");
    std::printf("%-40s %-20s %-10s %8lu  %s\n",
                Printable(tensor.spec.name).c_str(),
                shape.c_str(),
                ToString(tensor.spec.dtype).c_str(),
                updates,
                Printable(RoleText(tensor)).c_str());
  }
  return absl::OkStatus();
}

absl::Status Show(const ShowFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                            Checkpoint::Open(flags.path));
  return flags.is_json ? PrintJson(*checkpoint) : PrintText(*checkpoint);
}

absl::Status Export(const ExportFlags& flags) {
  if (flags.format == "pt") {
    return absl::InvalidArgumentError(
        "--format pt: files of PyTorch are written by PyTorch: python3 -m pushpull.torch.export "
        "PATH -o FILE, in an environment with the Python package");
  }
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                            Checkpoint::Open(flags.path));
  PosixFileSystem files;
  return ExportSafetensors(
      *checkpoint, files, {.file = flags.output, .with_optimizer = flags.with_optimizer});
}

constexpr char kPathHelp[] =
    "The folder of a checkpoint, or that of one job's checkpoints: the newest complete one";

}  // namespace

void AddCheckpointShowCommand(CLI::App& checkpoint, int& exit_code) {
  CLI::App* command = checkpoint.add_subcommand(
      "show", "Step, position in the data set, and tensors of a checkpoint");
  const auto flags = std::make_shared<ShowFlags>();
  command->add_option("path", flags->path, kPathHelp)->required();
  command->add_flag("--json", flags->is_json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = Report(Show(*flags)); });
}

void AddCheckpointExportCommand(CLI::App& checkpoint, int& exit_code) {
  CLI::App* command = checkpoint.add_subcommand(
      "export", "Write the tensors of a checkpoint to one file for other programs");
  const auto flags = std::make_shared<ExportFlags>();
  command->add_option("path", flags->path, kPathHelp)->required();
  command
      ->add_option("--format",
                   flags->format,
                   "safetensors; for pt, a file that torch.load reads, see python3 -m "
                   "pushpull.torch.export --help")
      ->check(CLI::IsMember({"safetensors", "pt"}))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output, "The file, which is replaced")->required();
  command->add_flag(
      "--with-optimizer", flags->with_optimizer, "Also the optimizers' state: optimizer.NAME.KEY");
  command->callback([flags, &exit_code] { exit_code = Report(Export(*flags)); });
}

}  // namespace pushpull
