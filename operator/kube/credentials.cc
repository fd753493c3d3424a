// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/credentials.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"

namespace pushpull_operator {
namespace {

using pushpull::MutexLock;

absl::StatusOr<std::string> Read(const Source& source) {
  if (source.file.empty()) return source.text;
  PUSHPULL_ASSIGN_OR_RETURN(std::string text, pushpull::ReadTextFile(source.file));
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(source.file, ": is empty"));
  return text;
}

// A token goes into a header, where a line end would start another.
absl::StatusOr<std::string> ReadToken(const Source& source) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, Read(source));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const bool is_plain = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (is_plain) return std::string(token);
  return absl::InvalidArgumentError(absl::StrCat(
      source.file.empty() ? "the token of the kubeconfig" : source.file, ": is no token"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(ClusterAccess access,
                                                                 const pushpull::TimeSource& time) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<Credentials> credentials(new Credentials(std::move(access), time));
  MutexLock lock(credentials->mu_);
  PUSHPULL_RETURN_IF_ERROR(credentials->Look());
  return credentials;
}

AccessNow Credentials::Current() {
  MutexLock lock(mu_);
  if (time_.Now() >= next_look_) last_look_ = Look();
  return now_;
}

absl::Status Credentials::last_look() const {
  MutexLock lock(mu_);
  return last_look_;
}

void Credentials::Distrust() {
  MutexLock lock(mu_);
  next_look_ = time_.Now();
}

absl::Status Credentials::Look() {
  next_look_ = time_.Now() + kRereadAfter;
  // Each on its own: a broken authority must not keep a fresh token from being used.
  const absl::StatusOr<std::string> token = ReadToken(access_.token);
  if (token.ok()) now_.token = *token;
  if (!access_.server.uses_tls) return token.status();
  TlsMaterial material{.check = access_.check};
  PUSHPULL_ASSIGN_OR_RETURN(material.authorities, Read(access_.authorities));
  PUSHPULL_ASSIGN_OR_RETURN(material.certificate, Read(access_.certificate));
  PUSHPULL_ASSIGN_OR_RETURN(material.private_key, Read(access_.private_key));
  if (now_.tls == nullptr || material != material_) {
    PUSHPULL_ASSIGN_OR_RETURN(now_.tls, TlsContext::Create(material));
    material_ = std::move(material);
  }
  return token.status();
}

}  // namespace pushpull_operator
