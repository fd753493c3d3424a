// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/control_client.h"

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "runtime/membership/stats_proto.h"

namespace pushpull {
namespace {

constexpr int kKeepaliveMilliseconds = 5000;

// gRPC would compare a name. A job's authority signs for nobody else, so the chain is all that is
// checked, as on the tcp channel (decisions/0026-tls.md).
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsIdentity& identity) {
  const TlsFiles& files = identity.files();
  const std::vector<grpc::experimental::IdentityKeyCertPair> own = {
      {.private_key = files.private_key, .certificate_chain = files.certificate}};
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(files.authorities, own));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  options.set_check_call_host(false);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

ControlLibrary::ControlLibrary() {
  grpc_init();
}
ControlLibrary::~ControlLibrary() {
  grpc_shutdown();
}

std::shared_ptr<grpc::Channel> MakeControlChannel(const ControlTarget& target,
                                                  std::optional<Duration> connect_timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kWireMessageBytesMax);
  // A connection of its own, and no memory of earlier failures to connect.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Peers of a job are never behind an HTTP proxy that the environment names.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Who is cut off, or crashes with its machine, closes no connection. A member tells a silent
  // coordinator from a slow one by this alone.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Asked for by name, for gRPC's server complains about every connection whose name its
  // certificate does not have.
  if (target.tls != nullptr) arguments.SetSslTargetNameOverride(kCertificateName);
  if (connect_timeout) {
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(*connect_timeout);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(timeout.count()));
  }
  return grpc::CreateCustomChannel(
      target.address,
      target.tls == nullptr ? grpc::InsecureChannelCredentials() : CredentialsOf(*target.tls),
      arguments);
}

absl::Status ExplainNoAnswer(const absl::Status& why, const ControlTarget& target) {
  if (!absl::IsUnavailable(why)) return why;
  if (target.tls == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(why.message(), "; if it has TLS, set PUSHPULL_TLS_DIR here"));
  }
  return absl::UnavailableError(
      absl::StrCat(why.message(),
                   "; over TLS: PUSHPULL_TLS_DIR must be set there too, and both sides' "
                   "certificates be of one job"));
}

}  // namespace pushpull
