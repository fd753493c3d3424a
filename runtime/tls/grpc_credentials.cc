// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/grpc_credentials.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/log.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "pushpull/deadline.h"

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Minimum time between two log lines about failed handshakes.
constexpr Duration kErrorPeriod = std::chrono::seconds(10);

// gRPC reports a failed handshake only on standard error. A wrong certificate must be visible, but
// strangers that connect must not fill the log.
void LogSparingly(gpr_log_func_args* message) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): gRPC has one log per
  // process
  static std::atomic<SteadyTime::rep> next_at = std::numeric_limits<SteadyTime::rep>::min();
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyTime::rep due = next_at.load(std::memory_order_relaxed);
  const SteadyTime::rep next = (now + kErrorPeriod).time_since_epoch().count();
  const bool is_error = message->severity == GPR_LOG_SEVERITY_ERROR;
  if (is_error &&
      (now.time_since_epoch().count() < due || !next_at.compare_exchange_strong(due, next)))
    return;
  const Log log("grpc");
  if (is_error) {
    log.Warning("a connection failed", {{"why", message->message}, {"at", message->file}});
  } else {
    log.Info(message->message);
  }
}

// Server credentials that follow a TlsFolder. gRPC's own file-based credentials watch files on a
// thread each, and drop the last good ones when a file is broken. Its core can ask a callback for
// each connection, which suffices, but has no C++ interface for that; this class provides one.
// Thread-safe.
class FollowingCredentials final : public grpc::ServerCredentials {
 public:
  explicit FollowingCredentials(const TlsFolder& tls)
      : tls_(tls),
        core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Fetch, this))) {}
  ~FollowingCredentials() override { grpc_server_credentials_release(core_); }
  FollowingCredentials(const FollowingCredentials&) = delete;
  FollowingCredentials& operator=(const FollowingCredentials&) = delete;

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  // Called by gRPC at the start and for each connection.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<FollowingCredentials*>(self)->FetchIfNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchIfNew(grpc_ssl_server_certificate_config** config)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const std::shared_ptr<const TlsIdentity> identity = tls_.identity();
    MutexLock lock(mu_);
    if (identity == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const TlsFiles& files = identity->files();
    const grpc_ssl_pem_key_cert_pair own = {.private_key = files.private_key.c_str(),
                                            .cert_chain = files.certificate.c_str()};
    *config = grpc_ssl_server_certificate_config_create(files.authorities.c_str(), &own, 1);
    given_ = identity;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsFolder& tls_;
  grpc_server_credentials* const core_;
  Mutex mu_;
  std::shared_ptr<const TlsIdentity> given_ ABSL_GUARDED_BY(mu_);
};

std::vector<std::string> ToStrings(const std::vector<grpc::string_ref>& names) {
  std::vector<std::string> strings;
  strings.reserve(names.size());
  for (const grpc::string_ref& name : names) strings.emplace_back(name.data(), name.size());
  return strings;
}

// Compares names as the tcp channel does, after gRPC has verified the chain; gRPC itself would
// compare host names. Immutable, so thread-safe.
class NameVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  NameVerifier(std::shared_ptr<const TlsIdentity> identity, std::string member)
      : identity_(std::move(identity)), member_(std::move(member)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* sync_status) override {
    const absl::Status verdict = Check(ToStrings(request->dns_names()));
    if (!verdict.ok())
      *sync_status = {grpc::StatusCode::UNAUTHENTICATED, std::string(verdict.message())};
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  absl::Status Check(const std::vector<std::string>& dns_names) const {
    PUSHPULL_ASSIGN_OR_RETURN(const PeerIdentity peer, AdmitPeer(dns_names, identity_->own()));
    return member_.empty() ? absl::OkStatus() : peer.CheckIs(member_);
  }

  const std::shared_ptr<const TlsIdentity> identity_;
  const std::string member_;
};

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(std::shared_ptr<const TlsIdentity> identity,
                                                        const std::string& member) {
  const TlsFiles& files = identity->files();
  const std::vector<grpc::experimental::IdentityKeyCertPair> own = {
      {.private_key = files.private_key, .certificate_chain = files.certificate}};
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(files.authorities, own));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<NameVerifier>(std::move(identity),
                                                                            member));
  options.set_check_call_host(false);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFolder* tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  gpr_set_log_function(&LogSparingly);
  return std::make_shared<FollowingCredentials>(*tls);
}

absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& context, const TlsFolder* tls) {
  if (tls == nullptr) return PeerIdentity::Anybody();
  return AdmitPeer(ToStrings(context.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME)),
                   tls->identity()->own());
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    std::shared_ptr<const TlsIdentity> identity, const std::string& member) {
  return identity == nullptr ? grpc::InsecureChannelCredentials()
                             : CredentialsOf(std::move(identity), member);
}

absl::Status ExplainNoAnswer(const absl::Status& why, bool has_tls) {
  if (!absl::IsUnavailable(why)) return why;
  // gRPC's texts if no connection was established. Such a peer has not been asked about TLS.
  if (absl::StrContains(why.message(), "Failed to connect to remote host") ||
      absl::StrContains(why.message(), "DNS resolution failed")) {
    return absl::UnavailableError(absl::StrCat(
        "cannot be reached: ", why.message(), "; check the address, and whether it runs there"));
  }
  return absl::UnavailableError(absl::StrCat(
      why.message(),
      has_tls ? "; over TLS: PUSHPULL_TLS_DIR must be set there too, and both sides' certificates "
                "be of one job"
              : "; if it has TLS, set PUSHPULL_TLS_DIR here"));
}

}  // namespace pushpull
