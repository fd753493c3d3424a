// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/tls_context.h"

#include <openssl/ssl.h>

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

absl::Status UseAuthorities(const std::string& pem, SSL_CTX& context) {
  if (!pem.empty())
    return pushpull::TrustAuthorities({.name = "the authorities", .text = pem}, context);
  if (SSL_CTX_set_default_verify_paths(&context) == 1) return absl::OkStatus();
  return pushpull::TlsError("the system's authorities");
}

absl::Status UseCertificate(const TlsMaterial& material, SSL_CTX& context) {
  if (material.certificate.empty()) return absl::OkStatus();
  return pushpull::UseCertificate({.name = "the client certificate", .text = material.certificate},
                                  {.name = "the client key", .text = material.private_key},
                                  context);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Create(const TlsMaterial& material) {
  pushpull::TlsContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("cannot make a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  if (material.check == ServerCheck::kVerify) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    PUSHPULL_RETURN_IF_ERROR(UseAuthorities(material.authorities, *context));
  }
  PUSHPULL_RETURN_IF_ERROR(UseCertificate(material, *context));
  return std::shared_ptr<const TlsContext>(new TlsContext(std::move(context), material.check));
}

}  // namespace pushpull_operator
