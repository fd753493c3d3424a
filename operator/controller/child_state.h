// SPDX-License-Identifier: Apache-2.0
//
// How the operator left a job's objects, so that what others have done to them since is noticed and
// undone, but not in a fight: who changes an object again and again has it undone less and less
// often. Pure.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "operator/api/wall_time.h"

namespace pushpull_operator {

// Objects are named by their kind's plural: a job has one of each. Versions are those of
// ChildCache::Find, empty where there is no object.
class ChildState {
 public:
  // How long a cache may take to show a write.
  static constexpr std::chrono::seconds kBehindMax{2};
  // Between two times that an object is healed; doubles while they follow each other within kCalm.
  static constexpr std::chrono::seconds kPauseMin{1};
  static constexpr std::chrono::seconds kPauseMax{60};
  static constexpr std::chrono::minutes kCalm{5};

  // When to write the object, of which the cache shows `seen`; nothing: it is as it was left. What
  // an operator that has just begun finds is taken to be right until `check_at`.
  std::optional<WallTime> WriteAt(const std::string& kind,
                                  const std::string& seen,
                                  WallTime now,
                                  WallTime check_at);
  // The version that was written last; empty: none was.
  std::string LeftAs(const std::string& kind) const;
  // The object was made or confirmed: it was `seen` before, and is `written` now.
  void OnWritten(const std::string& kind,
                 const std::string& seen,
                 const std::string& written,
                 WallTime now);
  // Likewise, and that undid what somebody else had done.
  void OnHealed(const std::string& kind, WallTime now);
  // Not before this time is anything of this name healed again.
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
