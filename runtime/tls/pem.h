// SPDX-License-Identifier: Apache-2.0
//
// Loads PEM text into a TLS context, with OpenSSL's errors as statuses. These never quote the text,
// which may be a private key.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

struct ssl_ctx_st;  // SSL_CTX

namespace pushpull {

struct FreeTlsContext {
  void operator()(ssl_ctx_st* context) const;
};
using TlsContextPtr = std::unique_ptr<ssl_ctx_st, FreeTlsContext>;

// The text, and where it comes from, for errors.
struct Pem {
  absl::string_view name;
  const std::string& text;
};

// kInvalidArgument with `what` and OpenSSL's oldest error on this thread. Clears OpenSSL's error
// queue: anything left there would be taken for a failure of the next call.
absl::Status TlsError(absl::string_view what);

// Trusts every certificate in the text. kInvalidArgument: it has none, or a damaged one.
absl::Status TrustAuthorities(const Pem& authorities, ssl_ctx_st& context);

// Presents the first certificate of the text, followed by its chain. kInvalidArgument: not PEM, a
// key with a password, or the two do not belong together.
absl::Status UseCertificate(const Pem& certificate, const Pem& private_key, ssl_ctx_st& context);

}  // namespace pushpull
