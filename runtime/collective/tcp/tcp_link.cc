// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/tcp/tcp_link.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<PeerLink>> TcpLink::Make(TcpStream stream) {
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer staged, HostBuffer::Uninitialized(kStagedBytes));
  return std::unique_ptr<PeerLink>(new TcpLink(std::move(stream), std::move(staged)));
}

TcpLink::TcpLink(TcpStream stream, HostBuffer staged)
    : stream_(std::move(stream)), staged_(std::move(staged)) {
  unsent_.reserve(kGatheredBytes);
}

absl::StatusOr<size_t> TcpLink::Send(std::span<const std::byte> bytes) {
  if (unsent_.size() + bytes.size() <= kGatheredBytes) {
    unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }
  return Write(bytes);
}

absl::Status TcpLink::Flush() {
  return has_unsent() ? Write({}).status() : absl::OkStatus();
}

absl::StatusOr<size_t> TcpLink::Write(std::span<const std::byte> bytes) {
  if (!can_write_) return 0;
  const std::array<iovec, 2> buffers = {
      {{.iov_base = unsent_.data(), .iov_len = unsent_.size()},
       {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()}}};
  const size_t first = unsent_.empty() ? 1 : 0;
  const size_t end = bytes.empty() ? 1 : 2;
  PUSHPULL_ASSIGN_OR_RETURN(const Transfer sent,
                            stream_.Send(std::span(buffers).subspan(first, end - first)));
  can_write_ = sent.wait == Transfer::Wait::kNothing;
  const size_t of_gathered = std::min(sent.num_bytes, unsent_.size());
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(of_gathered));
  return sent.num_bytes - of_gathered;
}

absl::StatusOr<size_t> TcpLink::Read(std::span<std::byte> into) {
  if (!can_read_) return 0;
  const iovec buffer = {.iov_base = into.data(), .iov_len = into.size()};
  PUSHPULL_ASSIGN_OR_RETURN(const Transfer got, stream_.Receive(std::span(&buffer, 1)));
  // Fewer bytes than there was room for: the next call would find none.
  can_read_ = got.wait == Transfer::Wait::kNothing;
  return got.num_bytes;
}

absl::StatusOr<std::span<const std::byte>> TcpLink::Peek(size_t least, size_t most) {
  const size_t wanted = std::clamp(most, least, kStagedBytes);
  if (Staged().size() < wanted) {
    if (staged_begin_ + wanted > kStagedBytes || Staged().empty()) CompactStaged();
    PUSHPULL_ASSIGN_OR_RETURN(const size_t got,
                              Read(staged_.bytes().subspan(staged_end_, wanted - Staged().size())));
    staged_end_ += got;
  }
  if (Staged().size() < least) return std::span<const std::byte>();
  return std::span<const std::byte>(Staged());
}

absl::StatusOr<size_t> TcpLink::Receive(std::span<std::byte> into) {
  if (Staged().empty()) return Read(into);
  const size_t count = std::min(into.size(), Staged().size());
  std::memcpy(into.data(), Staged().data(), count);
  Consume(count);
  return count;
}

void TcpLink::CompactStaged() {
  const std::span<std::byte> staged = Staged();
  if (staged_begin_ > 0 && !staged.empty())
    std::memmove(staged_.bytes().data(), staged.data(), staged.size());
  staged_begin_ = 0;
  staged_end_ = staged.size();
}

pollfd TcpLink::WaitFor(LinkWants wants) const {
  const int events = (wants.bytes ? POLLIN : 0) | (wants.room ? POLLOUT : 0);
  return {.fd = stream_.socket(), .events = static_cast<short>(events), .revents = 0};
}

void TcpLink::OnReady(short events) {
  // The end of the connection shows in the next call.
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) can_read_ = true;
  if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0) can_write_ = true;
}

}  // namespace pushpull
