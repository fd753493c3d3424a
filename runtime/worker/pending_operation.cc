// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/pending_operation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

absl::string_view NameOf(FrameType type) {
  switch (type) {
    case FrameType::kPush:
      return "push";
    case FrameType::kPull:
      return "pull";
    case FrameType::kInit:
      return "initial value";
    default:
      return "push_pull";
  }
}

}  // namespace

std::string PendingOperation::what() const {
  if (!type_) return *subject_;
  return absl::StrCat(NameOf(*type_), " of tensor \"", *subject_, "\" step ", step_.value());
}

void PendingOperation::Expect(ServerId server, size_t parts) {
  if (parts == 0) return;
  MutexLock lock(mu_);
  const auto at = std::ranges::lower_bound(missing_, server, {}, &Missing::first);
  if (at != missing_.end() && at->first == server) {
    at->second += parts;
  } else {
    missing_.emplace(at, server, parts);
  }
}

void PendingOperation::PartDone(ServerId server) {
  {
    MutexLock lock(mu_);
    const auto it = std::ranges::find(missing_, server, &Missing::first);
    if (it == missing_.end()) return;
    if (--it->second == 0) missing_.erase(it);
    if (!missing_.empty()) return;
  }
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

void PendingOperation::SetUpdates(uint64_t updates) {
  MutexLock lock(mu_);
  updates_ = std::max(updates_, updates);
}

uint64_t PendingOperation::updates() const {
  MutexLock lock(mu_);
  return updates_;
}

void PendingOperation::NoteGradient(bool has_gradient) {
  MutexLock lock(mu_);
  has_gradient_ = has_gradient || has_gradient_.value_or(false);
}

bool PendingOperation::has_gradient() const {
  MutexLock lock(mu_);
  return has_gradient_.value_or(true);
}

void PendingOperation::Fail(const absl::Status& why) {
  End(absl::Status(why.code(), absl::StrCat(what(), ": ", why.message())));
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

void PendingOperation::SetNeed(std::string need, SteadyTime since) {
  MutexLock lock(mu_);
  need_ = std::move(need);
  need_until_ = since + kNeedLimit;
  changed_.NotifyAll();
}

bool PendingOperation::is_done() const {
  MutexLock lock(mu_);
  return is_done_;
}

absl::Status PendingOperation::Wait(Deadline deadline) {
  MutexLock lock(mu_);
  while (!is_done_) {
    if (deadline.has_passed() || IsNeedOverdue()) return Overdue();
    const SteadyTime until =
        need_.empty() ? deadline.when() : std::min(deadline.when(), need_until_);
    changed_.WaitUntil(mu_, Deadline(until));
  }
  return status_;
}

absl::Status PendingOperation::Overdue() const {
  if (IsNeedOverdue()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what(), ": this program keeps its own step waiting; ", need_));
  }
  const std::string missing = MissingServersLocked();
  std::string why = need_;
  if (why.empty() && awaited_ != nullptr) {
    const bool is_push = type_ && IsPush(*type_);
    why = awaited_->Describe(is_push ? std::optional(step_) : std::nullopt);
  }
  if (why.empty()) why = note_;
  if (why.empty() && !missing.empty()) why = absl::StrCat("no answer from ", missing);
  return absl::DeadlineExceededError(
      absl::StrCat(what(), ": not done in time", why.empty() ? "" : "; ", why));
}

std::string PendingOperation::MissingServers() const {
  MutexLock lock(mu_);
  return MissingServersLocked();
}

std::string PendingOperation::MissingServersLocked() const {
  return absl::StrJoin(missing_, ", ", [](std::string* text, const Missing& missing) {
    text->append(ToString(missing.first));
  });
}

}  // namespace pushpull
