// SPDX-License-Identifier: Apache-2.0
//
// Who this process is and whom it trusts, for both ends of TLS connections. The authority of a job
// signs for its members only, so a certificate of that authority is all that a peer has to show; no
// name in it is compared (decisions/0026-tls.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/tls/pem.h"

namespace pushpull {

// A name (DNS) that every certificate of every job has beside its own. Nothing depends on it.
inline constexpr char kCertificateName[] = "pushpull";

// What is in ca.crt, tls.crt and tls.key.
struct TlsFiles {
  std::string authorities;
  std::string certificate;  // the own one first, then its chain
  std::string private_key;
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Immutable, so thread-safe. Connections keep the one they began with.
class TlsIdentity {
 public:
  // kInvalidArgument names the file that is no PEM, a pair that does not belong together, or a
  // certificate that the own authorities would refuse, because it is another's or has expired: so
  // would every peer. Never says what is in a file.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> Create(TlsFiles files);

  const TlsFiles& files() const { return files_; }
  // TLS 1.3, for both sides: shows the own certificate and insists on the peer's.
  ssl_ctx_st* context() const { return context_.get(); }
  // When the first of the own certificate and those that vouch for it ends.
  std::chrono::system_clock::time_point expires_at() const { return expires_at_; }

 private:
  TlsIdentity(TlsFiles files,
              TlsContextPtr context,
              std::chrono::system_clock::time_point expires_at)
      : files_(std::move(files)), context_(std::move(context)), expires_at_(expires_at) {}

  const TlsFiles files_;
  const TlsContextPtr context_;
  const std::chrono::system_clock::time_point expires_at_;
};

}  // namespace pushpull
