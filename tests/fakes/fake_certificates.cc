// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using CertificatePtr = std::unique_ptr<X509, Free>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;
using BioPtr = std::unique_ptr<BIO, Free>;

std::string Content(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

void AddExtension(X509* certificate, int id, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value);
  PUSHPULL_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Signed by itself where `authority` is null.
FakeCertificate Make(const std::string& name,
                     const FakeCertificate* authority,
                     std::chrono::seconds valid_for,
                     const std::string& alternative_names = "") {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), authority == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_for.count());
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(
      subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  KeyPtr signer;
  if (authority == nullptr) {
    X509_set_issuer_name(certificate.get(), subject);
    AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  } else {
    const BioPtr issuer_pem(BIO_new_mem_buf(authority->certificate.c_str(), -1));
    const CertificatePtr issuer(PEM_read_bio_X509(issuer_pem.get(), nullptr, nullptr, nullptr));
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
    if (!alternative_names.empty())
      AddExtension(certificate.get(), NID_subject_alt_name, alternative_names.c_str());
    const BioPtr key_pem(BIO_new_mem_buf(authority->private_key.c_str(), -1));
    signer.reset(PEM_read_bio_PrivateKey(key_pem.get(), nullptr, nullptr, nullptr));
  }
  EVP_PKEY* signing = signer != nullptr ? signer.get() : key.get();
  PUSHPULL_CHECK(X509_sign(certificate.get(), signing, EVP_sha256()) > 0);
  const BioPtr certificate_pem(BIO_new(BIO_s_mem()));
  const BioPtr key_pem(BIO_new(BIO_s_mem()));
  PUSHPULL_CHECK(PEM_write_bio_X509(certificate_pem.get(), certificate.get()) == 1);
  PUSHPULL_CHECK(PEM_write_bio_PrivateKey(
                     key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return {.certificate = Content(certificate_pem.get()), .private_key = Content(key_pem.get())};
}

}  // namespace

FakeCertificate MakeAuthority(const std::string& name, std::chrono::seconds valid_for) {
  return Make(name, nullptr, valid_for);
}

FakeCertificate MakeCertificate(const std::string& name,
                                const FakeCertificate& authority,
                                std::chrono::seconds valid_for) {
  return Make(name, &authority, valid_for, "IP:127.0.0.1,DNS:pushpull.test,DNS:pushpull");
}

FakeCertificate MakeNamedCertificate(const std::vector<std::string>& dns_names,
                                     const FakeCertificate& authority) {
  std::string alternative_names;
  for (const std::string& name : dns_names)
    alternative_names += (alternative_names.empty() ? "DNS:" : ",DNS:") + name;
  return Make("member", &authority, std::chrono::hours(1), alternative_names);
}

}  // namespace pushpull
