// SPDX-License-Identifier: Apache-2.0
//
// Dials a peer over tcp: its addresses one after the other until one answers.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/stream/socket_address.h"
#include "runtime/transport/stream/stream_connector.h"

namespace pushpull {

// Thread-confined to the loop.
class TcpConnector final : public StreamConnector {
 public:
  using StreamConnector::StreamConnector;

  // What the look-up found, or why it found nothing. Called after Begin.
  void TryAddresses(absl::StatusOr<std::vector<SocketAddress>> addresses);

 private:
  absl::Status Explain(const absl::Status& why) const override;
  void StopDialing() override;

  // Goes on with the next address, or fails with `why` where there is none.
  void TryNext(const absl::Status& why);
  absl::Status Try(const SocketAddress& address);
  void OnConnected();

  std::vector<SocketAddress> addresses_;  // not tried yet, the next one last
  FileDescriptor socket_;                 // while a connect is in progress
};

}  // namespace pushpull
