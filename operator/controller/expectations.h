// SPDX-License-Identifier: Apache-2.0
//
// Writes that the caches must show before a job is planned again, like the expectations of
// client-go's controllers: a plan on an older state would make a pod twice or count an end twice.
// Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "operator/controller/observed_job.h"

namespace pushpull_operator {

class Expectations {
 public:
  // How long a write is waited for. An object that is still missing then was deleted meanwhile.
  static constexpr std::chrono::seconds kTimeout{10};

  // The job was patched: it will have another version than `replaced`.
  void ExpectUpdate(const std::string& replaced, WallTime now);
  void ExpectPod(const ObjectMeta& created, WallTime now);
  // Whether `job` shows all of it, or kTimeout has passed since the last write.
  bool AreMet(const ObservedJob& job);

 private:
  std::string replaced_version_;
  std::map<std::string, std::string> created_pods_;  // name -> uid
  WallTime expires_at_{};
};

}  // namespace pushpull_operator
