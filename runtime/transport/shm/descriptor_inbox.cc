// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/descriptor_inbox.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// The kernel queues fewer; an inbox that receives more is under attack.
constexpr int kMessagesMax = 64;

struct Address {
  sockaddr_un name{};
  socklen_t num_bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// An abstract name, which is in no folder, begins with a zero byte.
absl::StatusOr<Address> AddressOf(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.name.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is too long for the name of a socket"));
  }
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.num_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.is_open()) return StatusFromErrno(errno, "make a socket for descriptors");
  return made;
}

// A token, and room for one descriptor.
struct Message {
  ShmToken token{};
  iovec bytes{&token, sizeof token};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};

  Message() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

// Returns all descriptors, even unexpected ones: this process owns them now and must close them.
std::vector<FileDescriptor> DescriptorsOf(msghdr& header) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  return descriptors;
}

}  // namespace

ShmToken RandomToken() {
  std::random_device random;
  ShmToken token;
  for (uint64_t& half : token) half = (uint64_t{random()} << 32) | random();
  return token;
}

absl::StatusOr<DescriptorInbox> DescriptorInbox::Open(absl::string_view prefix) {
  ShmOffer offer{.name = absl::StrCat(prefix, absl::Hex(RandomToken()[0], absl::kZeroPad16)),
                 .token = RandomToken()};
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket());
  PUSHPULL_ASSIGN_OR_RETURN(const Address address, AddressOf(offer.name));
  if (bind(socket.get(), address.get(), address.num_bytes) != 0)
    return StatusFromErrno(errno, absl::StrCat("bind @", offer.name));
  return DescriptorInbox(std::move(socket), std::move(offer));
}

absl::StatusOr<FileDescriptor> DescriptorInbox::Take() const {
  for (int i = 0; i < kMessagesMax; ++i) {
    Message message;
    const ssize_t got = recvmsg(socket_.get(), &message.header, MSG_CMSG_CLOEXEC);
    if (got < 0) break;
    std::vector<FileDescriptor> descriptors = DescriptorsOf(message.header);
    const bool is_whole = got == sizeof(ShmToken) && (message.header.msg_flags & MSG_TRUNC) == 0;
    if (is_whole && message.token == address_.token && descriptors.size() == 1)
      return std::move(descriptors.front());
  }
  return absl::NotFoundError(absl::StrCat("no descriptor has come to @", address_.name));
}

absl::Status SendDescriptor(const ShmOffer& inbox, int descriptor) {
  PUSHPULL_ASSIGN_OR_RETURN(const FileDescriptor socket, NewSocket());
  PUSHPULL_ASSIGN_OR_RETURN(Address address, AddressOf(inbox.name));
  Message message;
  message.token = inbox.token;
  message.header.msg_name = &address.name;
  message.header.msg_namelen = address.num_bytes;
  cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  if (sendmsg(socket.get(), &message.header, MSG_NOSIGNAL) < 0)
    return StatusFromErrno(errno, absl::StrCat("send a descriptor to @", inbox.name));
  return absl::OkStatus();
}

}  // namespace pushpull
