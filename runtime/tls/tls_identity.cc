// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/tls_identity.h"

#include <openssl/asn1.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

using WallTime = std::chrono::system_clock::time_point;

// Both ends are ours. 128 bits come first: a third less CPU time than with 256, OpenSSL's
// preference.
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

// Several records per system call.
constexpr size_t kReadAheadBytes = 64 * 1024;

struct Free {
  void operator()(X509_STORE_CTX* check) const { X509_STORE_CTX_free(check); }
  void operator()(ASN1_TIME* time) const { ASN1_TIME_free(time); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

TlsContextPtr NewContext() {
  TlsContextPtr context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), kCipherSuites);
  SSL_CTX_set_verify(
      context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, /*callback=*/nullptr);
  // No session resumption: every connection presents its certificate, so none outlives its
  // authority.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  return context;
}

WallTime ExpiryOf(const X509* certificate) {
  const std::unique_ptr<ASN1_TIME, Free> epoch(ASN1_TIME_set(nullptr, 0));
  int days = 0;
  int seconds = 0;
  ASN1_TIME_diff(&days, &seconds, epoch.get(), X509_get0_notAfter(certificate));
  return WallTime(std::chrono::days(days) + std::chrono::seconds(seconds));
}

// Verifies this process's certificate as every peer will. Returns the earliest expiry in its chain.
absl::StatusOr<WallTime> CheckOwnCertificate(SSL_CTX& context) {
  const std::unique_ptr<X509_STORE_CTX, Free> check(X509_STORE_CTX_new());
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(&context, &chain);
  if (X509_STORE_CTX_init(check.get(),
                          SSL_CTX_get_cert_store(&context),
                          SSL_CTX_get0_certificate(&context),
                          chain) != 1) {
    return TlsError("tls.crt cannot be verified");
  }
  if (X509_verify_cert(check.get()) != 1) {
    const int why = X509_STORE_CTX_get_error(check.get());
    return TlsError(
        absl::StrCat("tls.crt is not signed by an authority in ca.crt, or not valid now (",
                     X509_verify_cert_error_string(why),
                     ")"));
  }
  const STACK_OF(X509)* verified = X509_STORE_CTX_get0_chain(check.get());
  WallTime end = WallTime::max();
  for (int i = 0; i < sk_X509_num(verified); ++i)
    end = std::min(end, ExpiryOf(sk_X509_value(verified, i)));
  return end;
}

}  // namespace

std::vector<std::string> DnsNamesOf(const x509_st& certificate) {
  const std::unique_ptr<GENERAL_NAMES, Free> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> dns_names;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS) continue;
    const auto* data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    std::string text(data, static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    if (text.find('\0') == std::string::npos) dns_names.push_back(std::move(text));
  }
  return dns_names;
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::Create(TlsFiles files) {
  TlsContextPtr context = NewContext();
  if (context == nullptr) return absl::ResourceExhaustedError("cannot make a TLS context");
  PUSHPULL_RETURN_IF_ERROR(
      TrustAuthorities({.name = "ca.crt", .text = files.authorities}, *context));
  PUSHPULL_RETURN_IF_ERROR(UseCertificate({.name = "tls.crt", .text = files.certificate},
                                          {.name = "tls.key", .text = files.private_key},
                                          *context));
  PUSHPULL_ASSIGN_OR_RETURN(const WallTime expires_at, CheckOwnCertificate(*context));
  absl::StatusOr<PeerIdentity> own =
      PeerIdentity::Of(DnsNamesOf(*SSL_CTX_get0_certificate(context.get())));
  if (!own.ok())
    return absl::InvalidArgumentError(absl::StrCat("tls.crt: ", own.status().message()));
  return std::shared_ptr<const TlsIdentity>(
      new TlsIdentity(std::move(files), std::move(context), *std::move(own), expires_at));
}

}  // namespace pushpull
