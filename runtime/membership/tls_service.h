// SPDX-License-Identifier: Apache-2.0
//
// What a gRPC server shows and asks for. No gRPC header is needed here.
#pragma once

#include <memory>

#include "runtime/tls/tls_folder.h"

namespace grpc {
class ServerCredentials;
}  // namespace grpc

namespace pushpull {

// Each connection is accepted with the certificates of that moment, and only with a certificate of
// the same authority. `tls` and the result outlive the server. What gRPC says of itself goes to the
// log from then on, errors once in ten seconds. Null: no TLS.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFolder* tls);

}  // namespace pushpull
