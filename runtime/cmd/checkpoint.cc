// SPDX-License-Identifier: Apache-2.0
//
// `pushpull checkpoint`: what is in a folder of checkpoints, and whether it can be trusted. `list`
// and `verify` work on the files alone, whether a job runs or not; `now` is in checkpoint_now.cc,
// `show` and `export` are in checkpoint_show.cc.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/verify.h"
#include "runtime/cmd/commands.h"

namespace pushpull {
namespace {

struct CheckpointFlags {
  std::string dir;
  bool is_json = false;
};

// The verdict on one folder.
struct Verified {
  std::string folder;
  Step step;
  std::optional<CheckpointOwner> owner = {};
  absl::Status status = {};  // OK: `report` has what was found
  VerifyReport report = {};

  bool is_whole() const { return status.ok() && report.num_problems == 0; }
  // A save that died or is still running: not a checkpoint, but not damage either.
  bool is_incomplete() const { return absl::IsNotFound(status); }
};

void Print(const nlohmann::json& json) {
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

// Names of folders and tensors were chosen by others.
std::string Text(const absl::Status& status) {
  return Printable(status.message());
}

const char* StateName(const absl::Status& status) {
  if (status.ok()) return "complete";
  if (absl::IsNotFound(status)) return "incomplete";
  if (absl::IsUnimplemented(status)) return "later format";
  return absl::IsDataLoss(status) ? "damaged" : "unreadable";
}

// Adds the job that it belongs to, if its manifest can be read.
void AddOwner(const std::optional<CheckpointOwner>& owner, nlohmann::json& json) {
  if (!owner) return;
  json["job"] = owner->job;
  if (!owner->job_namespace.empty()) json["namespace"] = owner->job_namespace;
}

nlohmann::json ToJson(const ListedCheckpoint& listed) {
  nlohmann::json json = {{"step", listed.step.value()},
                         {"folder", listed.folder},
                         {"state", StateName(listed.status)}};
  AddOwner(listed.owner, json);
  if (!listed.status.ok()) {
    json["problem"] = Text(listed.status);
    return json;
  }
  json["mode"] = listed.mode;
  json["written_at"] = listed.written_at;
  json["tensors"] = listed.num_tensors;
  json["chunks"] = listed.num_chunks;
  json["bytes"] = listed.file_bytes;
  return json;
}

void PrintTable(const std::vector<ListedCheckpoint>& list) {
  std::printf("%12s  %-12s %-20s %-24s %-8s %8s %8s %10s\n",
              "step",
              "state",
              "written",
              "job",
              "mode",
              "tensors",
              "chunks",
              "MiB");
  for (const ListedCheckpoint& listed : list) {
    std::printf("%12lu  %-12s", listed.step.value(), StateName(listed.status));
    if (!listed.status.ok()) {
      std::printf(" %s\n", Text(listed.status).c_str());
      continue;
    }
    const std::string written = absl::FormatTime(
        "%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(listed.written_at), absl::UTCTimeZone());
    std::printf(" %-20s %-24s %-8s %8lu %8lu %10.1f\n",
                written.c_str(),
                ToString(listed.owner.value_or(CheckpointOwner{})).c_str(),
                listed.mode.c_str(),
                listed.num_tensors,
                listed.num_chunks,
                static_cast<double>(listed.file_bytes) / (1 << 20));
  }
}

int List(const CheckpointFlags& flags) {
  PosixFileSystem files;
  const absl::StatusOr<std::vector<ListedCheckpoint>> list = ListCheckpointsBelow(files, flags.dir);
  if (!list.ok()) return Report(list.status());
  if (flags.is_json) {
    nlohmann::json all = nlohmann::json::array();
    for (const ListedCheckpoint& listed : *list) all.push_back(ToJson(listed));
    Print({{"folder", flags.dir}, {"checkpoints", all}});
  } else if (list->empty()) {
    std::printf("%s: has no checkpoint\n", flags.dir.c_str());
  } else {
    PrintTable(*list);
  }
  return kExitDone;
}

// `dir` if it is a checkpoint itself, otherwise every checkpoint in it and in the job folders in
// it.
absl::StatusOr<std::vector<Verified>> FoldersToVerify(FileSystem& files, const std::string& dir) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> list,
                            ListCheckpointsBelow(files, dir));
  std::vector<Verified> folders;
  folders.reserve(list.size() + 1);
  for (const ListedCheckpoint& listed : list)
    folders.push_back({.folder = listed.folder, .step = listed.step, .owner = listed.owner});
  if (!folders.empty()) return folders;
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(files, dir);
  if (absl::IsNotFound(manifest.status()))
    return absl::NotFoundError(absl::StrCat(dir, ": has no checkpoint"));
  folders.push_back({.folder = dir});
  if (manifest.ok()) folders.back().owner = manifest->owner;
  return folders;
}

void Verify(FileSystem& files, Verified& verified) {
  absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files, verified.folder);
  verified.status = report.status();
  if (!report.ok()) return;
  verified.report = *std::move(report);
  if (verified.report.step != Step{}) verified.step = verified.report.step;
}

nlohmann::json ToJson(const Verified& verified) {
  nlohmann::json problems = nlohmann::json::array();
  for (const VerifyProblem& problem : verified.report.problems) {
    nlohmann::json json = {{"file", problem.file}, {"text", problem.text}};
    if (problem.offset) json["offset"] = *problem.offset;
    problems.push_back(json);
  }
  if (!verified.status.ok() && !verified.is_incomplete())
    problems.push_back({{"file", verified.folder}, {"text", Text(verified.status)}});
  const bool is_damaged = verified.status.ok() && !verified.is_whole();
  nlohmann::json json = {{"step", verified.step.value()},
                         {"folder", verified.folder},
                         {"state", is_damaged ? "damaged" : StateName(verified.status)},
                         {"files", verified.report.num_files},
                         {"records", verified.report.num_records},
                         {"bytes", verified.report.bytes},
                         {"num_problems", verified.report.num_problems},
                         {"problems", problems}};
  AddOwner(verified.owner, json);
  return json;
}

// Prints valid checkpoints to standard output and the others to standard error.
void PrintText(const Verified& verified) {
  const std::string folder = Printable(verified.folder);
  if (verified.is_whole()) {
    std::printf("%s: valid: of job %s, %lu chunks, %.1f MiB in %lu files\n",
                folder.c_str(),
                ToString(verified.owner.value_or(CheckpointOwner{})).c_str(),
                verified.report.num_records,
                static_cast<double>(verified.report.bytes) / (1 << 20),
                verified.report.num_files);
    return;
  }
  if (verified.is_incomplete()) {
    std::printf("%s: incomplete: a save that was interrupted or is under way\n", folder.c_str());
    return;
  }
  if (!verified.status.ok())
    std::fprintf(stderr, "pushpull: %s: %s\n", folder.c_str(), Text(verified.status).c_str());
  for (const VerifyProblem& problem : verified.report.problems)
    std::fprintf(stderr, "pushpull: %s\n", Printable(problem.text).c_str());
  if (verified.report.num_problems > verified.report.problems.size()) {
    std::fprintf(stderr,
                 "pushpull: %s: %lu problems more\n",
                 folder.c_str(),
                 verified.report.num_problems - verified.report.problems.size());
  }
}

int VerifyAll(const CheckpointFlags& flags) {
  PosixFileSystem files;
  absl::StatusOr<std::vector<Verified>> folders = FoldersToVerify(files, flags.dir);
  if (!folders.ok()) return Report(folders.status());
  bool is_fine = true;
  nlohmann::json all = nlohmann::json::array();
  for (Verified& verified : *folders) {
    Verify(files, verified);
    is_fine = is_fine && (verified.is_whole() || verified.is_incomplete());
    if (flags.is_json) {
      all.push_back(ToJson(verified));
    } else {
      PrintText(verified);
    }
  }
  if (flags.is_json) Print({{"folder", flags.dir}, {"valid", is_fine}, {"checkpoints", all}});
  return is_fine ? kExitDone : kExitFailed;
}

void AddAction(CLI::App& command,
               const char* name,
               const char* description,
               int (*action)(const CheckpointFlags&),
               int& exit_code) {
  CLI::App* added = command.add_subcommand(name, description);
  const auto flags = std::make_shared<CheckpointFlags>();
  added
      ->add_option(
          "dir", flags->dir, "The folder of a job's checkpoints, or of those of several jobs")
      ->required();
  added->add_flag("--json", flags->is_json, "As JSON");
  added->callback([flags, action, &exit_code] {
    // Paths are formed by appending to it.
    while (flags->dir.size() > 1 && flags->dir.back() == '/') flags->dir.pop_back();
    exit_code = action(*flags);
  });
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "Save, list, verify, show and export checkpoints");
  command->require_subcommand(1);
  AddCheckpointNowCommand(*command, exit_code);
  AddAction(*command,
            "list",
            "What is in DIR and the folders of jobs in it, newest first",
            List,
            exit_code);
  AddAction(*command,
            "verify",
            "Check every checksum of every checkpoint that list shows, or of the one that DIR is",
            VerifyAll,
            exit_code);
  AddCheckpointShowCommand(*command, exit_code);
  AddCheckpointExportCommand(*command, exit_code);
}

}  // namespace pushpull
