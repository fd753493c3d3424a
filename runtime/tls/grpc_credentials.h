// SPDX-License-Identifier: Apache-2.0
//
// What the two ends of a gRPC connection show and ask for. No gRPC header is needed here.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "runtime/tls/tls_folder.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace pushpull {

// Each connection is accepted with the certificates of that moment, and only with a certificate of
// the same authority. `tls` and the result outlive the server. What gRPC says of itself goes to the
// log from then on, errors once in ten seconds. Null: no TLS.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFolder* tls);

// Of a connection that begins now. Null: no TLS.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TlsIdentity* identity);

// What a call came to that had no answer, with what gRPC does not know: that the two ends may
// differ in their certificates.
absl::Status ExplainNoAnswer(const absl::Status& why, bool has_tls);

}  // namespace pushpull
