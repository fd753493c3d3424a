// SPDX-License-Identifier: Apache-2.0
//
// PEM text into a TLS context, with the library's complaints as statuses. They never say what is in
// the text.
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

// Where the text is from, for errors, and the text.
struct Pem {
  absl::string_view name;
  const std::string& text;
};

// kInvalidArgument with `what` and the oldest complaint of the library on this thread. The library
// keeps them on a queue; what is left there would be taken for a failure of the next call, so none
// is.
absl::Status TlsError(absl::string_view what);

// Trusts every certificate of the text. kInvalidArgument: it has none, or one that is damaged.
absl::Status TrustAuthorities(const Pem& authorities, ssl_ctx_st& context);

// Shows `certificate`, the first one of the text, followed by its chain. kInvalidArgument: either
// text is something else, the key has a password, or the two do not belong together.
absl::Status UseCertificate(const Pem& certificate, const Pem& private_key, ssl_ctx_st& context);

}  // namespace pushpull
