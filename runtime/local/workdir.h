// SPDX-License-Identifier: Apache-2.0
//
// The folder of a local job: lock, term, manifest, endpoints, logs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

struct Endpoint {
  std::string role;  // coordinator, server or worker
  uint32_t index = 0;
  int64_t pid = 0;
  std::string control;  // host:port; empty if the role has none
  std::string data;
  std::string metrics;
  std::string page;  // URL of the coordinator's status page; empty elsewhere
};

// Holds the lock while it lives. Thread-compatible.
class Workdir {
 public:
  // Creates the folder and locks it. kAlreadyExists: another launcher runs in it; the text has its
  // pid.
  static absl::StatusOr<Workdir> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string log_path(absl::string_view process) const;
  // Path of the process's termination message (runtime/base/termination_message.h).
  std::string termination_path(absl::string_view process) const;

  // One more than the last term, written before it is returned, so that no term is used twice.
  // kDataLoss: the last term cannot be read.
  absl::StatusOr<uint64_t> NextTerm();
  // Saves the manifest as it is now, so that later edits do not affect a running job. Returns its
  // path.
  absl::StatusOr<std::string> KeepManifest(const std::string& manifest);
  absl::StatusOr<std::string> KeepManifestText(const std::string& text);
  // Replaces the file that ReadEndpoints reads as a whole.
  absl::Status WriteEndpoints(const std::vector<Endpoint>& endpoints);
  void RemoveEndpoints();

 private:
  Workdir(std::string path, FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
};

// The members that run in a workdir, from its `endpoints.json`. kNotFound: no job runs in it.
// kDataLoss: the file has other contents.
absl::StatusOr<std::vector<Endpoint>> ReadEndpoints(const std::string& workdir);

// Writes a file so that a reader sees either the old text or the new, never a part.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view text);

}  // namespace pushpull
