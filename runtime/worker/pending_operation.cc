// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/pending_operation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

void PendingOperation::Expect(ServerId server, size_t parts) {
  MutexLock lock(mu_);
  if (parts > 0) missing_[server] += parts;
}

void PendingOperation::PartDone(ServerId server) {
  {
    MutexLock lock(mu_);
    const auto it = missing_.find(server);
    if (it == missing_.end()) return;
    if (--it->second == 0) missing_.erase(it);
    if (!missing_.empty()) return;
  }
  End(absl::OkStatus());
}

void PendingOperation::Finish() {
  End(absl::OkStatus());
}

void PendingOperation::SetPiece(uint64_t offset, Payload piece) {
  MutexLock lock(mu_);
  pieces_.insert_or_assign(offset, std::move(piece));
}

std::vector<std::span<const float>> PendingOperation::Pieces() const {
  MutexLock lock(mu_);
  std::vector<std::span<const float>> pieces;
  for (const auto& [offset, piece] : pieces_) {
    pieces.emplace_back(reinterpret_cast<const float*>(piece.bytes.data()),
                        piece.bytes.size() / sizeof(float));
  }
  return pieces;
}

void PendingOperation::Fail(const absl::Status& why) {
  End(absl::Status(why.code(), absl::StrCat(what_, ": ", why.message())));
}

void PendingOperation::End(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (is_done_) return;
    is_done_ = true;
    status_ = status;
    changed_.NotifyAll();
  }
  if (on_done_) on_done_(status);
}

void PendingOperation::SetNote(std::string note) {
  MutexLock lock(mu_);
  note_ = std::move(note);
}

bool PendingOperation::is_done() const {
  MutexLock lock(mu_);
  return is_done_;
}

absl::Status PendingOperation::Wait(Deadline deadline) {
  MutexLock lock(mu_);
  while (!is_done_) {
    if (changed_.WaitUntil(mu_, deadline) || is_done_) continue;
    if (!note_.empty())
      return absl::DeadlineExceededError(absl::StrCat(what_, ": not done in time; ", note_));
    const std::string missing = MissingServersLocked();
    return absl::DeadlineExceededError(absl::StrCat(
        what_, ": not done in time", missing.empty() ? "" : "; no answer from ", missing));
  }
  return status_;
}

std::string PendingOperation::MissingServers() const {
  MutexLock lock(mu_);
  return MissingServersLocked();
}

std::string PendingOperation::MissingServersLocked() const {
  std::string text;
  for (const auto& [server, parts] : missing_)
    absl::StrAppend(&text, text.empty() ? "" : ", ", ToString(server));
  return text;
}

}  // namespace pushpull
