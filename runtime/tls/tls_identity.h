// SPDX-License-Identifier: Apache-2.0
//
// The certificate and the trusted authorities of this process, for both ends of TLS connections.
// A peer's certificate must come from a trusted authority, and its names must be those of a member
// of this job (docs/decisions/0061-names-in-certificates.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/tls/peer_identity.h"
#include "runtime/tls/pem.h"

struct x509_st;  // X509

namespace pushpull {

// The DNS names of a certificate, without those that contain a zero byte, where other software
// might stop reading.
std::vector<std::string> DnsNamesOf(const x509_st& certificate);

// The contents of ca.crt, tls.crt and tls.key.
struct TlsFiles {
  std::string authorities;
  std::string certificate;  // this process's first, then its chain
  std::string private_key;
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Immutable, so thread-safe. A connection keeps the one with which it began.
class TlsIdentity {
 public:
  // kInvalidArgument names the file: not PEM, a key for another certificate, or a certificate that
  // every peer would reject (from another authority, expired, or without a member's name). Never
  // quotes a file, except for those names.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> Create(TlsFiles files);

  const TlsFiles& files() const { return files_; }
  // This process's identity according to the certificate.
  const PeerIdentity& own() const { return own_; }
  // TLS 1.3, for both sides: presents the certificate and requires the peer's, whose names the
  // caller must check.
  ssl_ctx_st* context() const { return context_.get(); }
  // When the earliest certificate of the verified chain expires.
  std::chrono::system_clock::time_point expires_at() const { return expires_at_; }

 private:
  TlsIdentity(TlsFiles files,
              TlsContextPtr context,
              PeerIdentity own,
              std::chrono::system_clock::time_point expires_at)
      : files_(std::move(files)),
        context_(std::move(context)),
        own_(std::move(own)),
        expires_at_(expires_at) {}

  const TlsFiles files_;
  const TlsContextPtr context_;
  const PeerIdentity own_;
  const std::chrono::system_clock::time_point expires_at_;
};

}  // namespace pushpull
