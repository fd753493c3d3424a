// SPDX-License-Identifier: Apache-2.0
//
// Whom the operator trusts and who it is, for TLS connections. Made anew when a file has changed;
// connections keep the one they began with.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/tls/pem.h"

namespace pushpull_operator {

enum class ServerCheck { kVerify, kSkip };

// PEM text, from files or from inside a kubeconfig.
struct TlsMaterial {
  std::string authorities;  // empty: those of the system
  std::string certificate;  // with its chain; empty: none
  std::string private_key;
  ServerCheck check = ServerCheck::kVerify;
  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

// Immutable, so thread-safe.
class TlsContext {
 public:
  // kInvalidArgument says which part of the material is no PEM, or that certificate and key do not
  // belong together. Never says what is in it.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Create(const TlsMaterial& material);

  ssl_ctx_st* get() const { return context_.get(); }
  ServerCheck check() const { return check_; }

 private:
  TlsContext(pushpull::TlsContextPtr context, ServerCheck check)
      : context_(std::move(context)), check_(check) {}

  pushpull::TlsContextPtr context_;
  ServerCheck check_;
};

}  // namespace pushpull_operator
