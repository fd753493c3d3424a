// SPDX-License-Identifier: Apache-2.0
//
// The order of work: which key is next. Keeps client-go's four promises:
//
//   1. fair: keys are handed out in the order they were added;
//   2. a key in work is not handed out a second time;
//   3. a key that is added while it is in work is handed out once more afterwards, and however
//   often
//      it is added before it is handed out, that is once;
//   4. after ShutDown nothing is added any more, and what was added is still handed out.
//
// Pure: the caller says what time it is. work_queue.h adds threads.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/deadline.h"

namespace pushpull_operator {

// Thread-compatible.
class QueueCore {
 public:
  void Add(const std::string& key);
  // Adds it at `when`; of several times for one key the earliest counts.
  void AddAt(const std::string& key, pushpull::SteadyTime when);

  // The next key, which is in work from now on; nothing: none is ready.
  std::optional<std::string> Take(pushpull::SteadyTime now);
  // The key is not in work any more.
  void Done(const std::string& key);

  // When the next delayed key is to be added.
  std::optional<pushpull::SteadyTime> next_due() const;

  // Keys that wait for their time are dropped: they come from the state of the cluster again.
  void ShutDown();
  bool is_shut_down() const { return is_shut_down_; }
  // Shut down, nothing queued and nothing in work.
  bool is_drained() const { return is_shut_down_ && queue_.empty() && in_work_.empty(); }
  bool has_ready() const { return !queue_.empty(); }

  size_t depth() const { return queue_.size(); }
  size_t num_waiting() const { return due_.size(); }

 private:
  void AddDue(pushpull::SteadyTime now);

  std::deque<std::string> queue_;  // ready; each is in dirty_ and not in in_work_
  std::set<std::string> dirty_;    // to be handed out: queued, or added while in work
  std::set<std::string> in_work_;  // handed out and not done
  std::map<std::string, pushpull::SteadyTime> due_;                 // delayed
  std::set<std::pair<pushpull::SteadyTime, std::string>> by_time_;  // the same, earliest first
  bool is_shut_down_ = false;
};

}  // namespace pushpull_operator
