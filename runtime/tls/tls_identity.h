// SPDX-License-Identifier: Apache-2.0
//
// The certificate and the trusted authorities of this process, for both ends of TLS connections.
// The authority of a job signs for its members only, so any certificate of that authority is
// accepted; no name in it is compared (docs/decisions/0026-tls.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/tls/pem.h"

namespace pushpull {

// A DNS name that every certificate has beside its own, for libraries that insist on comparing one.
inline constexpr char kCertificateName[] = "pushpull";

// The contents of ca.crt, tls.crt and tls.key.
struct TlsFiles {
  std::string authorities;
  std::string certificate;  // this process's first, then its chain
  std::string private_key;
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Immutable, so thread-safe. Connections keep the one they began with.
class TlsIdentity {
 public:
  // kInvalidArgument names the file: not PEM, a key of another certificate, or a certificate that
  // these authorities reject (of another authority, or expired), as every peer would. Never quotes
  // a file.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> Create(TlsFiles files);

  const TlsFiles& files() const { return files_; }
  // TLS 1.3, for both sides: presents the certificate and requires the peer's.
  ssl_ctx_st* context() const { return context_.get(); }
  // When the first certificate of the verified chain expires.
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
