// SPDX-License-Identifier: Apache-2.0
//
// A peer that sends any bytes over a blocking socket, valid or not.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/hello.h"

namespace pushpull {

// Every call gives up after ten seconds.
class RawPeer {
 public:
  explicit RawPeer(FileDescriptor socket) : socket_(std::move(socket)) {}
  // `address` is 127.0.0.1:port.
  static RawPeer Connect(const std::string& address);

  void Send(std::span<const std::byte> bytes);
  void SendFrame(const FrameHeader& header,
                 std::span<const std::byte> meta = {},
                 std::span<const std::byte> payload = {});
  // A good hello of worker-7 to lane 0 from the host with that identity.
  void SendHello(uint64_t host);
  // The same, with shared memory.
  void SendHello(uint64_t host, const std::optional<ShmOffer>& shm);
  // The next frame without its payload, or why none came.
  absl::StatusOr<OutgoingFrame> ReceiveFrame();
  // Reads until the other side has closed the connection; false: it did not.
  bool WaitForEnd();
  // Closes the connection without reading what has arrived.
  void Close() { socket_.Reset(); }

 private:
  bool Receive(std::span<std::byte> bytes);

  FileDescriptor socket_;
};

// Listens on a free port of 127.0.0.1.
class RawListener {
 public:
  RawListener();
  const std::string& address() const { return address_; }
  RawPeer Accept();

 private:
  FileDescriptor socket_;
  std::string address_;
};

// A frame as it is on the wire.
std::vector<std::byte> EncodeFrame(FrameHeader header,
                                   std::span<const std::byte> meta,
                                   std::span<const std::byte> payload);

}  // namespace pushpull
