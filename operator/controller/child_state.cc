// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/child_state.h"

#include <algorithm>

namespace pushpull_operator {

std::optional<WallTime> ChildState::WriteAt(const std::string& kind,
                                            const std::string& seen,
                                            WallTime now,
                                            WallTime check_at) {
  const auto [found, is_new] = left_.try_emplace(kind);
  Left& left = found->second;
  if (is_new) left = {.before = seen, .written = seen, .written_at = {}, .check_at = check_at};
  const WallTime heal_at = std::max(now, HealAt(kind));
  if (seen.empty() && (is_new || left.written.empty())) return heal_at;
  if (seen == left.written) {
    if (left.check_at == WallTime::max()) return std::nullopt;
    return left.check_at;
  }
  const WallTime behind_until = left.written_at + kBehindMax;
  if (seen == left.before && now < behind_until) return behind_until;
  return heal_at;
}

std::string ChildState::LeftAs(const std::string& kind) const {
  const auto left = left_.find(kind);
  return left == left_.end() ? "" : left->second.written;
}

void ChildState::OnWritten(const std::string& kind,
                           const std::string& seen,
                           const std::string& written,
                           WallTime now) {
  left_[kind] = {.before = seen, .written = written, .written_at = now};
}

void ChildState::OnHealed(const std::string& kind, WallTime now) {
  Pace& pace = paces_[kind];
  pace.pause = now - pace.last < kCalm ? std::min(2 * pace.pause, kPauseMax) : kPauseMin;
  pace.last = now;
}

WallTime ChildState::HealAt(const std::string& kind) const {
  const auto pace = paces_.find(kind);
  return pace == paces_.end() ? WallTime{} : pace->second.last + pace->second.pause;
}

}  // namespace pushpull_operator
