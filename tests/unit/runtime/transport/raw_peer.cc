// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/transport/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/base/host_port.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/socket_address.h"

namespace pushpull {
namespace {

void LimitWaits(int socket) {
  const timeval ten_seconds{.tv_sec = 10, .tv_usec = 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &ten_seconds, sizeof ten_seconds);
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

RawPeer RawPeer::Connect(const std::string& address) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  LimitWaits(socket.get());
  const sockaddr_in target = Loopback(ParseHostPort(address)->port);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  return RawPeer(std::move(socket));
}

void RawPeer::Send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other side has had enough; the test sees that where it looks
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void RawPeer::SendFrame(const FrameHeader& header,
                        std::span<const std::byte> meta,
                        std::span<const std::byte> payload) {
  Send(EncodeFrame(header, meta, payload));
}

void RawPeer::SendHello(uint64_t host) {
  SendHello(host, std::nullopt);
}

void RawPeer::SendHello(uint64_t host, const std::optional<ShmOffer>& shm) {
  const HelloMeta hello{
      .hello = {.job = "job", .worker = WorkerId{7}, .incarnation = Incarnation{99}, .lane = 0},
      .host = host,
      .shm = shm};
  SendFrame({.type = FrameType::kHello}, EncodeHello(hello));
}

absl::StatusOr<OutgoingFrame> RawPeer::ReceiveFrame() {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  if (!Receive(bytes)) return absl::UnavailableError("no header came");
  absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
  if (!header.ok()) return header.status();
  OutgoingFrame frame{.header = *header, .meta = {}, .payload = {}};
  frame.meta.resize(header->meta_bytes);
  std::vector<std::byte> payload(header->payload_bytes);
  if (!Receive(frame.meta) || !Receive(payload))
    return absl::UnavailableError("the rest is missing");
  return frame;
}

bool RawPeer::WaitForEnd() {
  std::array<std::byte, 4096> ignored;
  while (true) {
    const ssize_t got = recv(socket_.get(), ignored.data(), ignored.size(), 0);
    if (got == 0) return true;
    if (got < 0) return errno == ECONNRESET;
  }
}

bool RawPeer::Receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

RawListener::RawListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  LimitWaits(socket_.get());
  const sockaddr_in any = Loopback(0);
  EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  EXPECT_EQ(listen(socket_.get(), 8), 0);
  address_ = LocalAddress(socket_.get());
}

RawPeer RawListener::Accept() {
  FileDescriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(socket.is_open());
  LimitWaits(socket.get());
  return RawPeer(std::move(socket));
}

std::vector<std::byte> EncodeFrame(FrameHeader header,
                                   std::span<const std::byte> meta,
                                   std::span<const std::byte> payload) {
  header.meta_bytes = static_cast<uint16_t>(meta.size());
  if (header.payload_bytes == 0) header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::vector<std::byte> bytes(kFrameHeaderBytes);
  EncodeFrameHeader(header, std::span(bytes).first<kFrameHeaderBytes>());
  bytes.insert(bytes.end(), meta.begin(), meta.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace pushpull
