// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/tls_folder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"

namespace pushpull {
namespace {

// Replacing the files takes less time than reading them, so the next two readings agree.
constexpr int kReadingsMax = 4;

absl::StatusOr<TlsFiles> ReadOnce(const std::string& folder) {
  TlsFiles files;
  PUSHPULL_ASSIGN_OR_RETURN(files.authorities, ReadTextFile(folder + "/ca.crt"));
  PUSHPULL_ASSIGN_OR_RETURN(files.certificate, ReadTextFile(folder + "/tls.crt"));
  PUSHPULL_ASSIGN_OR_RETURN(files.private_key, ReadTextFile(folder + "/tls.key"));
  return files;
}

// Never mixes old and new files if all are replaced at once: reads until two readings agree.
absl::StatusOr<TlsFiles> ReadAll(const std::string& folder) {
  PUSHPULL_ASSIGN_OR_RETURN(TlsFiles last, ReadOnce(folder));
  for (int i = 1; i < kReadingsMax; ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(TlsFiles next, ReadOnce(folder));
    if (next == last) return last;
    last = std::move(next);
  }
  return absl::UnavailableError("the files change while they are read");
}

absl::Status AboutFolder(const std::string& folder, const absl::Status& status) {
  return {status.code(), absl::StrCat(kTlsFolderVariable, " ", folder, ": ", status.message())};
}

std::string ToText(std::chrono::system_clock::time_point time) {
  return absl::FormatTime(absl::RFC3339_sec, absl::FromChrono(time), absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFolder>> TlsFolder::Open(const std::string& path,
                                                           const Log& log) {
  absl::StatusOr<TlsFiles> files = ReadAll(path);
  if (!files.ok()) return AboutFolder(path, files.status());
  absl::StatusOr<std::shared_ptr<const TlsIdentity>> identity =
      TlsIdentity::Create(*std::move(files));
  if (!identity.ok()) return AboutFolder(path, identity.status());
  return std::unique_ptr<TlsFolder>(new TlsFolder(path, *std::move(identity), log));
}

TlsFolder::~TlsFolder() = default;

std::shared_ptr<const TlsIdentity> TlsFolder::identity() const {
  MutexLock lock(mu_);
  return identity_;
}

void TlsFolder::Reload() {
  absl::StatusOr<TlsFiles> files = ReadAll(path_);
  absl::StatusOr<std::shared_ptr<const TlsIdentity>> next = identity();
  if (!files.ok()) {
    next = files.status();
  } else if (*files != (*next)->files()) {
    next = TlsIdentity::Create(*std::move(files));
  }
  std::string error = next.ok() ? "" : std::string(next.status().message());
  bool has_changed = false;
  {
    MutexLock lock(mu_);
    const bool is_new_error = std::exchange(logged_error_, error) != error;
    if (!is_new_error) error.clear();
    has_changed = next.ok() && *next != identity_;
    if (has_changed) identity_ = *next;
  }
  if (!error.empty()) {
    log_.Warning("new certificates are invalid, the last valid ones stay in use",
                 {{"folder", path_}, {"why", error}});
  }
  if (has_changed) {
    log_.Info("new certificates in use",
              {{"folder", path_}, {"expire", ToText((*next)->expires_at())}});
  }
}

void TlsFolder::KeepReloading(Duration period) {
  loop_ = std::make_unique<EventLoop>("pp-tls");
  loop_->Post([this, period] { ReloadEvery(period); });
}

void TlsFolder::ReloadEvery(Duration period) {
  Reload();
  loop_->RunAfter(period, [this, period] { ReloadEvery(period); });
}

absl::StatusOr<std::unique_ptr<TlsFolder>> OpenTlsFolder(const std::string& path, const Log& log) {
  if (path.empty()) return nullptr;
  return TlsFolder::Open(path, log);
}

}  // namespace pushpull
