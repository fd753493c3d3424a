// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/credentials.h"

#include <openssl/ssl.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"
#include "runtime/tls/pem.h"

namespace pushpull_operator {
namespace {

using pushpull::MutexLock;

absl::StatusOr<std::string> Read(const Source& source) {
  if (source.file.empty()) return source.text;
  PUSHPULL_ASSIGN_OR_RETURN(std::string text, pushpull::ReadTextFile(source.file));
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(source.file, ": is empty"));
  return text;
}

// A token becomes part of a header, where a line break would start another one.
absl::StatusOr<std::string> ReadToken(const Source& source) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, Read(source));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const bool is_plain = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (is_plain) return std::string(token);
  return absl::InvalidArgumentError(
      absl::StrCat(source.file.empty() ? "the token of the kubeconfig" : source.file,
                   ": is not a token: it has spaces or control characters inside"));
}

// kInvalidArgument says which part is not PEM, or that certificate and key do not match. Checked
// here, while the last good material is still there; libcurl would only find out with the first
// request.
absl::Status Validate(const TlsMaterial& material) {
  const pushpull::TlsContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("cannot create a TLS context");
  if (!material.authorities.empty() && material.check == ServerCheck::kVerify) {
    PUSHPULL_RETURN_IF_ERROR(pushpull::TrustAuthorities(
        {.name = "the authorities", .text = material.authorities}, *context));
  }
  if (material.certificate.empty()) return absl::OkStatus();
  return pushpull::UseCertificate({.name = "the client certificate", .text = material.certificate},
                                  {.name = "the client key", .text = material.private_key},
                                  *context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(ClusterAccess access,
                                                                 const pushpull::TimeSource& time) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<Credentials> credentials(new Credentials(std::move(access), time));
  MutexLock lock(credentials->mu_);
  PUSHPULL_RETURN_IF_ERROR(credentials->Reload());
  return credentials;
}

RequestAuth Credentials::Current() {
  MutexLock lock(mu_);
  if (time_.Now() >= next_reload_) last_error_ = Reload();
  return current_;
}

absl::Status Credentials::last_error() const {
  MutexLock lock(mu_);
  return last_error_;
}

void Credentials::Invalidate() {
  MutexLock lock(mu_);
  next_reload_ = time_.Now();
}

absl::Status Credentials::Reload() {
  next_reload_ = time_.Now() + kReloadAfter;
  // Independently: an invalid authority does not prevent the use of a fresh token.
  const absl::StatusOr<std::string> token = ReadToken(access_.token);
  if (token.ok()) current_.token = *token;
  if (!access_.server.uses_tls) return token.status();
  TlsMaterial material{.check = access_.check};
  PUSHPULL_ASSIGN_OR_RETURN(material.authorities, Read(access_.authorities));
  PUSHPULL_ASSIGN_OR_RETURN(material.certificate, Read(access_.certificate));
  PUSHPULL_ASSIGN_OR_RETURN(material.private_key, Read(access_.private_key));
  if (current_.tls == nullptr || material != *current_.tls) {
    PUSHPULL_RETURN_IF_ERROR(Validate(material));
    current_.tls = std::make_shared<const TlsMaterial>(std::move(material));
  }
  return token.status();
}

}  // namespace pushpull_operator
