// SPDX-License-Identifier: Apache-2.0
//
// The folder that PUSHPULL_TLS_DIR names: ca.crt, tls.crt and tls.key. The files may be replaced
// while the process runs, as Kubernetes does it, with one swap of a symbolic link, or one by one.
//
//   Look: read until two readings agree --> unchanged
//                                       --> good: connections from now on use it
//                                       --> broken: the last good one stays, said once
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/deadline.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull {

// Where processes find their folder; unset: no TLS.
inline constexpr char kTlsFolderVariable[] = "PUSHPULL_TLS_DIR";

// Thread-safe, except that KeepLooking is called once.
class TlsFolder {
 public:
  // Blocks on the file system. kNotFound, kPermissionDenied, ...: a file cannot be read;
  // kInvalidArgument: as TlsIdentity::Create; kUnavailable: the files are being replaced again and
  // again. Each names the variable, the folder and the file.
  static absl::StatusOr<std::unique_ptr<TlsFolder>> Open(const std::string& path, const Log& log);
  ~TlsFolder();

  // The last good one, never null.
  std::shared_ptr<const TlsIdentity> identity() const ABSL_LOCKS_EXCLUDED(mu_);

  // Takes over what has changed in the files, or says once why it cannot. Blocks on the file
  // system.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  // Looks every `period` from now on, on a thread of its own, "pp-tls".
  void KeepLooking(Duration period = std::chrono::seconds(5));

 private:
  TlsFolder(std::string path, std::shared_ptr<const TlsIdentity> identity, const Log& log)
      : path_(std::move(path)), log_(log), identity_(std::move(identity)) {}

  void LookAgain(Duration period);

  const std::string path_;
  const Log log_;
  mutable Mutex mu_;
  std::shared_ptr<const TlsIdentity> identity_ ABSL_GUARDED_BY(mu_);
  std::string complaint_ ABSL_GUARDED_BY(mu_);  // said of files that are there now
  std::unique_ptr<EventLoop> loop_;             // last: it uses all of the above
};

// What a connection that begins now shows. Null: no TLS.
inline std::shared_ptr<const TlsIdentity> CurrentIdentity(const TlsFolder* tls) {
  return tls == nullptr ? nullptr : tls->identity();
}

// Null for an empty path: no TLS.
absl::StatusOr<std::unique_ptr<TlsFolder>> OpenTlsFolder(const std::string& path, const Log& log);

}  // namespace pushpull
