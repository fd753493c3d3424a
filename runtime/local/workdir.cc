// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/workdir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"

namespace pushpull {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Endpoint, role, index, pid, control, data, metrics, page)

namespace {

std::string EndpointsFile(const std::string& workdir) {
  return absl::StrCat(workdir, "/endpoints.json");
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, absl::string_view text) {
  const std::string fresh = absl::StrCat(path, ".new");
  errno = 0;
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) {
      const int failure = errno == 0 ? EIO : errno;
      unlink(fresh.c_str());
      return StatusFromErrno(failure, absl::StrCat("write ", path));
    }
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (!error) return absl::OkStatus();
  unlink(fresh.c_str());
  return StatusFromErrno(error.value(), absl::StrCat("write ", path));
}

absl::StatusOr<Workdir> Workdir::Open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path + "/logs", error);
  if (error) return StatusFromErrno(error.value(), absl::StrCat("workdir ", path));
  FileDescriptor lock(open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.is_open()) return StatusFromErrno(errno, absl::StrCat("workdir ", path));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::string pid;
    std::ifstream(path + "/lock") >> pid;
    return absl::AlreadyExistsError(absl::StrCat(
        "workdir ", path, ": process ", pid, " runs a job in it; choose another with --workdir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock.get(), 0) != 0 || write(lock.get(), pid.data(), pid.size()) < 0) {
    return StatusFromErrno(errno, absl::StrCat("workdir ", path));
  }
  return Workdir(path, std::move(lock));
}

std::string Workdir::log_path(absl::string_view process) const {
  return absl::StrCat(path_, "/logs/", process, ".log");
}

std::string Workdir::termination_path(absl::string_view process) const {
  const std::string relative = absl::StrCat(path_, "/logs/", process, ".end");
  return std::filesystem::absolute(relative).string();
}

absl::StatusOr<uint64_t> Workdir::NextTerm() {
  const std::string path = path_ + "/term";
  uint64_t term = 0;
  std::ifstream file(path);
  // Starting over at 1 could repeat a term that members still know.
  if (file.is_open() && !(file >> term)) {
    return absl::DataLossError(
        absl::StrCat(path, ": is no number; choose another folder with --workdir"));
  }
  PUSHPULL_RETURN_IF_ERROR(WriteFileAtomically(path, absl::StrCat(++term, "\n")));
  return term;
}

absl::StatusOr<std::string> Workdir::KeepManifest(const std::string& manifest) {
  errno = 0;
  std::ifstream file(manifest, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return StatusFromErrno(errno == 0 ? EIO : errno, absl::StrCat("manifest ", manifest));
  return KeepManifestText(text.str());
}

absl::StatusOr<std::string> Workdir::KeepManifestText(const std::string& text) {
  const std::string path = path_ + "/manifest.yaml";
  PUSHPULL_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  return path;
}

absl::Status Workdir::WriteEndpoints(const std::vector<Endpoint>& endpoints) {
  return WriteFileAtomically(EndpointsFile(path_), nlohmann::json(endpoints).dump(2) + "\n");
}

void Workdir::RemoveEndpoints() {
  unlink(EndpointsFile(path_).c_str());
}

absl::StatusOr<std::vector<Endpoint>> ReadEndpoints(const std::string& workdir) {
  const std::string path = EndpointsFile(workdir);
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no job runs in this workdir"));
  try {
    return nlohmann::json::parse(file).get<std::vector<Endpoint>>();
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(absl::StrCat(path, ": names no coordinator"));
  }
}

}  // namespace pushpull
