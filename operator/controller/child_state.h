// SPDX-License-Identifier: Apache-2.0
//
// How the operator left a job's objects, so that later changes by others are noticed and undone,
// but without a fight: repeated changes to an object are undone less and less often. Pure.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "operator/api/wall_time.h"

namespace pushpull_operator {

// Objects are named by their kind's plural: a job has one of each. Versions are those of
// ChildCache::Find, empty if there is no object.
class ChildState {
 public:
  // How long a cache may take to show a write.
  static constexpr std::chrono::seconds kBehindMax{2};
  // Pause between healing an object and healing it again; doubles if that happens within kCalm.
  static constexpr std::chrono::seconds kPauseMin{1};
  static constexpr std::chrono::seconds kPauseMax{60};
  static constexpr std::chrono::minutes kCalm{5};

  // When to write the object, which the cache shows as `seen`; nothing: it is as it was left. An
  // operator that has just started takes what it finds to be right until `check_at`.
  std::optional<WallTime> WriteAt(const std::string& kind,
                                  const std::string& seen,
                                  WallTime now,
                                  WallTime check_at);
  // The version written last; empty: none was.
  std::string LeftAs(const std::string& kind) const;
  // The object was created or confirmed: it was `seen` before, and is `written` now.
  void OnWritten(const std::string& kind,
                 const std::string& seen,
                 const std::string& written,
                 WallTime now);
  // Likewise, and that undid somebody else's change.
  void OnHealed(const std::string& kind, WallTime now);
  // The earliest time at which an object with this name is healed again.
  WallTime HealAt(const std::string& kind) const;

 private:
  struct Left {
    std::string before;
    std::string written;
    WallTime written_at{};
    WallTime check_at{WallTime::max()};
  };
  struct Pace {
    std::chrono::seconds pause{0};
    WallTime last{};
  };
  std::map<std::string, Left> left_;
  std::map<std::string, Pace> paces_;
};

}  // namespace pushpull_operator
