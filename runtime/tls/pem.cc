// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

struct FreePart {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using BioPtr = std::unique_ptr<BIO, FreePart>;
using CertificatePtr = std::unique_ptr<X509, FreePart>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreePart>;

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// All certificates in the text, at least one.
absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(const Pem& pem) {
  const BioPtr reader = Reader(pem.text);
  std::vector<CertificatePtr> certificates;
  while (CertificatePtr next{PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  const bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (certificates.empty()) return TlsError(absl::StrCat(pem.name, " has no certificate in PEM"));
  if (!is_at_end) {
    return TlsError(
        absl::StrCat(pem.name, ": certificate ", certificates.size() + 1, " of it is damaged"));
  }
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<KeyPtr> ReadPrivateKey(const Pem& pem) {
  const BioPtr reader = Reader(pem.text);
  // Never prompts for a password.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, no_password, nullptr));
  if (key == nullptr)
    return TlsError(absl::StrCat(pem.name, " has no private key in PEM without a password"));
  return key;
}

}  // namespace

void FreeTlsContext::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

absl::Status TlsError(absl::string_view what) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return absl::InvalidArgumentError(reason == nullptr ? what
                                                      : absl::StrCat(what, " (", reason, ")"));
}

absl::Status TrustAuthorities(const Pem& authorities, ssl_ctx_st& context) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                            ReadCertificates(authorities));
  X509_STORE* store = SSL_CTX_get_cert_store(&context);
  for (const CertificatePtr& certificate : certificates) {
    if (X509_STORE_add_cert(store, certificate.get()) != 1)
      return TlsError(absl::StrCat(authorities.name, ": cannot be trusted"));
  }
  return absl::OkStatus();
}

absl::Status UseCertificate(const Pem& certificate, const Pem& private_key, ssl_ctx_st& context) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                            ReadCertificates(certificate));
  PUSHPULL_ASSIGN_OR_RETURN(const KeyPtr key, ReadPrivateKey(private_key));
  if (SSL_CTX_use_certificate(&context, certificates.front().get()) != 1)
    return TlsError(absl::StrCat(certificate.name, ": cannot be used"));
  for (size_t i = 1; i < certificates.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(&context, certificates[i].get()) != 1)
      return TlsError(absl::StrCat(certificate.name, ": its chain cannot be used"));
  }
  if (SSL_CTX_use_PrivateKey(&context, key.get()) != 1 || SSL_CTX_check_private_key(&context) != 1)
    return TlsError(
        absl::StrCat(certificate.name, " and ", private_key.name, " do not belong together"));
  return absl::OkStatus();
}

}  // namespace pushpull
