// SPDX-License-Identifier: Apache-2.0
//
// The folder that PUSHPULL_TLS_DIR names: ca.crt, tls.crt and tls.key. The files may be replaced
// while the process runs, all at once by swapping a symbolic link, as Kubernetes does, or one by
// one.
//
//   Reload: read until two readings agree --> unchanged
//                                         --> valid: new connections use it
//                                         --> invalid: the last valid one stays in use, logged once
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull {

// The environment variable that names the folder; unset: no TLS.
inline constexpr char kTlsFolderVariable[] = "PUSHPULL_TLS_DIR";

// Thread-safe, except that KeepReloading is called once.
class TlsFolder {
 public:
  // Blocks on the file system. Errors name the variable, the folder and the file:
  //   kNotFound, kPermissionDenied, ...  a file cannot be read
  //   kInvalidArgument                   as for TlsIdentity::Create
  //   kUnavailable                       the files keep changing while being read
  static absl::StatusOr<std::unique_ptr<TlsFolder>> Open(const std::string& path, const Log& log);
  ~TlsFolder();

  // The last valid identity, never null.
  std::shared_ptr<const TlsIdentity> identity() const ABSL_LOCKS_EXCLUDED(mu_);

  // Uses the files from now on if they have changed and are valid; if invalid, logs why, once.
  // Blocks on the file system.
  void Reload() ABSL_LOCKS_EXCLUDED(mu_);

  // Reloads every `period` from now on, on its own thread, "pp-tls".
  void KeepReloading(Duration period = std::chrono::seconds(5));

 private:
  TlsFolder(std::string path, std::shared_ptr<const TlsIdentity> identity, const Log& log)
      : path_(std::move(path)), log_(log), identity_(std::move(identity)) {}

  void ReloadEvery(Duration period);

  const std::string path_;
  const Log log_;
  mutable Mutex mu_;
  std::shared_ptr<const TlsIdentity> identity_ ABSL_GUARDED_BY(mu_);
  std::string logged_error_ ABSL_GUARDED_BY(mu_);  // about the current files; empty: valid
  std::unique_ptr<EventLoop> loop_;                // last: it uses all of the above
};

// The identity for a connection that begins now. Null: no TLS.
inline std::shared_ptr<const TlsIdentity> CurrentIdentity(const TlsFolder* tls) {
  return tls == nullptr ? nullptr : tls->identity();
}

// Null for an empty path: no TLS.
absl::StatusOr<std::unique_ptr<TlsFolder>> OpenTlsFolder(const std::string& path, const Log& log);

}  // namespace pushpull
