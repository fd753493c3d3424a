// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Deleter<BIO_free>>;
using CertificatePtr = std::unique_ptr<X509, Deleter<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

// The library keeps its complaints on a queue of the thread; one that is left there would be taken
// for a failure of the next call.
absl::Status Broken(const std::string& what) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return absl::InvalidArgumentError(reason == nullptr ? what
                                                      : absl::StrCat(what, " (", reason, ")"));
}

BioPtr Reader(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

CertificatePtr NextCertificate(BIO* pem) {
  return CertificatePtr(PEM_read_bio_X509(pem, nullptr, nullptr, nullptr));
}

absl::Status UseAuthorities(const std::string& pem, SSL_CTX* context) {
  if (pem.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) != 1) return Broken("the system's authorities");
    return absl::OkStatus();
  }
  const BioPtr reader = Reader(pem);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  int num_certificates = 0;
  while (const CertificatePtr certificate = NextCertificate(reader.get())) {
    if (X509_STORE_add_cert(store, certificate.get()) != 1) return Broken("an authority");
    ++num_certificates;
  }
  if (num_certificates == 0) return Broken("the authorities hold no certificate in PEM");
  ERR_clear_error();  // reading on past the last one is an error
  return absl::OkStatus();
}

absl::Status UseCertificate(const TlsMaterial& material, SSL_CTX* context) {
  if (material.certificate.empty()) return absl::OkStatus();
  const BioPtr certificates = Reader(material.certificate);
  const CertificatePtr own = NextCertificate(certificates.get());
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) {
    return Broken("the client certificate is no certificate in PEM");
  }
  while (const CertificatePtr link = NextCertificate(certificates.get())) {
    if (SSL_CTX_add1_chain_cert(context, link.get()) != 1) return Broken("a chain certificate");
  }
  ERR_clear_error();
  const BioPtr reader = Reader(material.private_key);
  // No password is ever asked for.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, no_password, nullptr));
  if (key == nullptr) return Broken("the client key is no private key in PEM without a password");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return Broken("client certificate and client key do not belong together");
  }
  return absl::OkStatus();
}

}  // namespace

void TlsContext::Free::operator()(SSL_CTX* context) const {
  SSL_CTX_free(context);
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Create(const TlsMaterial& material) {
  std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("cannot make a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  if (material.check == ServerCheck::kVerify) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    PUSHPULL_RETURN_IF_ERROR(UseAuthorities(material.authorities, context.get()));
  }
  PUSHPULL_RETURN_IF_ERROR(UseCertificate(material, context.get()));
  return std::shared_ptr<const TlsContext>(new TlsContext(std::move(context), material.check));
}

}  // namespace pushpull_operator
