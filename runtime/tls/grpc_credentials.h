// SPDX-License-Identifier: Apache-2.0
//
// The credentials of the two ends of a gRPC connection. Includes no gRPC header.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/tls/tls_folder.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace pushpull {

// Each connection uses the certificates that are current when it is accepted, and requires one of
// the same authority from the peer; the calls have to check whose it is (PeerOf). `tls` and the
// result outlive the server. Redirects gRPC's own messages to the log, errors at most once every
// ten seconds. Null: no TLS.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFolder* tls);

// Who calls. Null: no TLS, anybody. kPermissionDenied: nobody whose calls this process should
// accept.
absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& context, const TlsFolder* tls);

// For a connection that begins now, to this member ("server-1", "coordinator"); empty: to any
// member of the job. Null: no TLS.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    std::shared_ptr<const TlsIdentity> identity, const std::string& member);

// The status of a call without an answer, with a hint that gRPC cannot give: the two ends may
// differ in their use of TLS or in their certificates.
absl::Status ExplainNoAnswer(const absl::Status& why, bool has_tls);

}  // namespace pushpull
