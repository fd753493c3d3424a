// SPDX-License-Identifier: Apache-2.0
#include "operator/certificates/certificate_maker.h"

#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull_operator {
namespace {

// ub-common-name of RFC 5280.
constexpr size_t kNameBytesMax = 64;
constexpr int kSerialBits = 127;  // positive in 16 bytes

struct Free {
  void operator()(ASN1_TIME* time) const { ASN1_TIME_free(time); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// Errors left on this thread's queue would be taken for failures of the next OpenSSL call.
class ErrorQueue {
 public:
  ErrorQueue() = default;
  ~ErrorQueue() { ERR_clear_error(); }
  ErrorQueue(const ErrorQueue&) = delete;
  ErrorQueue& operator=(const ErrorQueue&) = delete;
};

absl::Status LibraryError(const char* what) {
  const char* reason = ERR_reason_error_string(ERR_peek_error());
  return absl::InternalError(
      absl::StrCat("certificate: ", what, " failed (", reason == nullptr ? "?" : reason, ")"));
}

Owned<BIO> Reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> ReadCertificate(const std::string& text) {
  return Owned<X509>(PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, nullptr));
}

Owned<EVP_PKEY> ReadKey(const std::string& text) {
  // Never prompt for a password.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  return Owned<EVP_PKEY>(
      PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, no_password, nullptr));
}

std::string Content(BIO& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  return size <= 0 ? std::string() : std::string(data, static_cast<size_t>(size));
}

std::string ToPem(X509& certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(bio.get(), &certificate) == 1 ? Content(*bio) : "";
}

std::string ToPem(EVP_PKEY& key) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  const int written =
      PEM_write_bio_PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr, nullptr);
  return written == 1 ? Content(*bio) : "";
}

std::optional<WallTime> TimeOf(const ASN1_TIME* time) {
  const Owned<ASN1_TIME> epoch(ASN1_TIME_set(nullptr, 0));
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1) return std::nullopt;
  return WallTime(std::chrono::days(days) + std::chrono::seconds(seconds));
}

std::optional<Validity> ValidityOf(const X509& certificate) {
  const std::optional<WallTime> begin = TimeOf(X509_get0_notBefore(&certificate));
  const std::optional<WallTime> end = TimeOf(X509_get0_notAfter(&certificate));
  if (!begin || !end) return std::nullopt;
  return Validity{.begin = *begin, .end = *end};
}

bool SetTimes(const Validity& validity, X509& certificate) {
  const auto set = [](ASN1_TIME* field, WallTime time) {
    return ASN1_TIME_set(field, time.time_since_epoch().count()) != nullptr;
  };
  return set(X509_getm_notBefore(&certificate), validity.begin) &&
         set(X509_getm_notAfter(&certificate), validity.end);
}

bool SetSerial(X509& certificate) {
  const Owned<BIGNUM> serial(BN_new());
  return BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(&certificate)) != nullptr;
}

bool SetName(const std::string& name, X509& certificate) {
  const std::string cut = name.substr(0, kNameBytesMax);
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(&certificate),
                                    "CN",
                                    MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(cut.data()),
                                    static_cast<int>(cut.size()),
                                    -1,
                                    0) == 1;
}

using Extensions = std::vector<std::pair<int, std::string>>;  // NID -> OpenSSL's syntax

// Key identifiers distinguish authorities: all authorities of a job have the same name.
Extensions OfAuthority() {
  return {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
          {NID_key_usage, "critical,keyCertSign,cRLSign"},
          {NID_subject_key_identifier, "hash"}};
}

Extensions OfMember(const CertificateSubject& subject) {
  const auto as_dns = [](std::string* out, const std::string& name) {
    absl::StrAppend(out, "DNS:", name);
  };
  return {{NID_basic_constraints, "critical,CA:FALSE"},
          {NID_key_usage, "critical,digitalSignature"},
          {NID_ext_key_usage, "serverAuth,clientAuth"},
          {NID_subject_alt_name, absl::StrJoin(subject.dns_names, ",", as_dns)},
          {NID_subject_key_identifier, "hash"},
          {NID_authority_key_identifier, "keyid:always"}};
}

bool AddExtensions(const Extensions& extensions, X509& issuer, X509& certificate) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  for (const auto& [id, value] : extensions) {
    const Owned<X509_EXTENSION> extension(
        X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
    if (extension == nullptr || X509_add_ext(&certificate, extension.get(), -1) != 1) return false;
  }
  return true;
}

struct Signer {
  X509* certificate = nullptr;  // null: self-signed
  EVP_PKEY* key = nullptr;
};

absl::StatusOr<KeyPair> Issue(const CertificateSubject& subject,
                              const Validity& validity,
                              const Extensions& extensions,
                              Signer signer) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> certificate(X509_new());
  if (key == nullptr || certificate == nullptr) return LibraryError("creating a key");
  if (signer.certificate == nullptr) signer = {.certificate = certificate.get(), .key = key.get()};
  const bool is_filled =
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 && SetSerial(*certificate) &&
      SetTimes(validity, *certificate) && X509_set_pubkey(certificate.get(), key.get()) == 1 &&
      SetName(subject.name, *certificate) &&
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer.certificate)) == 1;
  if (!is_filled) return LibraryError("setting fields");
  if (!AddExtensions(extensions, *signer.certificate, *certificate))
    return LibraryError("adding an extension");
  if (X509_sign(certificate.get(), signer.key, EVP_sha256()) <= 0) return LibraryError("signing");
  KeyPair pair{.certificate = ToPem(*certificate), .private_key = ToPem(*key)};
  if (pair.certificate.empty() || pair.private_key.empty()) return LibraryError("writing PEM");
  return pair;
}

// Null if certificate and key do not match.
Owned<X509> ReadPair(const KeyPair& pair) {
  Owned<X509> certificate = ReadCertificate(pair.certificate);
  const Owned<EVP_PKEY> key = ReadKey(pair.private_key);
  if (certificate == nullptr || key == nullptr) return nullptr;
  return X509_check_private_key(certificate.get(), key.get()) == 1 ? std::move(certificate)
                                                                   : nullptr;
}

}  // namespace

absl::StatusOr<KeyPair> MakeAuthority(const CertificateSubject& subject, const Validity& validity) {
  const ErrorQueue errors;
  return Issue(subject, validity, OfAuthority(), {});
}

absl::StatusOr<KeyPair> MakeMember(const CertificateSubject& subject,
                                   const Validity& validity,
                                   const KeyPair& authority) {
  const ErrorQueue errors;
  const Owned<X509> certificate = ReadCertificate(authority.certificate);
  const Owned<EVP_PKEY> key = ReadKey(authority.private_key);
  if (certificate == nullptr || key == nullptr) return LibraryError("reading the authority");
  return Issue(
      subject, validity, OfMember(subject), {.certificate = certificate.get(), .key = key.get()});
}

std::optional<Validity> CheckAuthority(const KeyPair& authority) {
  const ErrorQueue errors;
  const Owned<X509> certificate = ReadPair(authority);
  if (certificate == nullptr || X509_check_ca(certificate.get()) != 1) return std::nullopt;
  return ValidityOf(*certificate);
}

std::optional<Validity> CheckMember(const KeyPair& member, const KeyPair& authority) {
  const ErrorQueue errors;
  const Owned<X509> signer = ReadCertificate(authority.certificate);
  const Owned<X509> certificate = ReadPair(member);
  if (signer == nullptr || certificate == nullptr) return std::nullopt;
  if (X509_check_ca(certificate.get()) != 0) return std::nullopt;
  if (X509_check_issued(signer.get(), certificate.get()) != X509_V_OK) return std::nullopt;
  if (X509_verify(certificate.get(), X509_get0_pubkey(signer.get())) != 1) return std::nullopt;
  return ValidityOf(*certificate);
}

std::string FirstCertificate(const std::string& text) {
  const ErrorQueue errors;
  const Owned<X509> certificate = ReadCertificate(text);
  return certificate == nullptr ? "" : ToPem(*certificate);
}

}  // namespace pushpull_operator
