// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/control_client.h"

#include <grpcpp/grpcpp.h>

#include "runtime/membership/control_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

constexpr int kKeepaliveMilliseconds = 5000;
// The status of a job with 1,024 servers and 4,096 workers takes about 1 MB.
constexpr int kAnswerBytesMax = 4 << 20;
// Per connection for single calls.
constexpr size_t kAnswerMemoryBytes = 4 * kAnswerBytesMax;

}  // namespace

ControlLibrary::ControlLibrary() {
  grpc_init();
}
ControlLibrary::~ControlLibrary() {
  grpc_shutdown();
}

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const ControlTarget& target,
                                           int receive_bytes_max,
                                           std::optional<Duration> connect_timeout,
                                           const grpc::ResourceQuota* quota = nullptr) {
  grpc::ChannelArguments arguments;
  if (quota != nullptr) arguments.SetResourceQuota(*quota);
  arguments.SetMaxReceiveMessageSize(receive_bytes_max);
  // Not shared, and without the backoff from earlier failures to connect.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A job's peers are never behind an HTTP proxy from the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A coordinator whose machine crashes or is cut off closes no connection: only keepalive tells a
  // lost coordinator from a slow one.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC's server logs an error for every connection to a name that is not in its certificate.
  if (target.tls != nullptr) arguments.SetSslTargetNameOverride(kCertificateName);
  if (connect_timeout) {
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(*connect_timeout);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(timeout.count()));
  }
  return grpc::CreateCustomChannel(
      target.address, MakeChannelCredentials(target.tls, kCoordinatorMember), arguments);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeControlChannel(const ControlTarget& target,
                                                  std::optional<Duration> connect_timeout) {
  return MakeChannel(target, kWireMessageBytesMax, connect_timeout);
}

std::shared_ptr<grpc::Channel> MakeRequestChannel(const ControlTarget& target) {
  // gRPC checks a message's size only once it is complete, so its memory is bounded as well.
  grpc::ResourceQuota quota("pushpull-answers");
  quota.Resize(kAnswerMemoryBytes);
  return MakeChannel(target, kAnswerBytesMax, std::nullopt, &quota);
}

}  // namespace pushpull
