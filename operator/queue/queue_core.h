// SPDX-License-Identifier: Apache-2.0
//
// The order in which keys are processed. Guarantees of client-go's work queue:
//
//   fair           keys are handed out in the order they were added
//   exclusive      a key in processing is not handed out a second time
//   deduplicated   a key added in processing, once or often, is handed out once more after Done
//   draining       after ShutDown nothing is added, and what was added is still handed out
//
// Pure: the caller passes the time. work_queue.h adds threads.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "pushpull/deadline.h"

namespace pushpull_operator {

// Thread-compatible.
class QueueCore {
 public:
  void Add(const std::string& key) {
    if (is_shut_down_ || !dirty_.insert(key).second) return;
    if (!processing_.contains(key)) queue_.push_back(key);
  }
  // Adds the key at `when`; the earliest of several times counts.
  void AddAt(const std::string& key, pushpull::SteadyTime when) {
    if (is_shut_down_) return;
    const auto [entry, is_new] = due_.try_emplace(key, when);
    if (!is_new) {
      if (entry->second <= when) return;
      by_time_.erase({entry->second, key});
      entry->second = when;
    }
    by_time_.insert({when, key});
  }

  // The next key, in processing from now on; nothing if none is ready.
  std::optional<std::string> Take(pushpull::SteadyTime now) {
    AddDue(now);
    if (queue_.empty()) return std::nullopt;
    std::string key = std::move(queue_.front());
    queue_.pop_front();
    dirty_.erase(key);
    processing_.insert(key);
    return key;
  }
  // Ends the processing of the key.
  void Done(const std::string& key) {
    if (processing_.erase(key) > 0 && dirty_.contains(key)) queue_.push_back(key);
  }

  // When the next delayed key is due.
  std::optional<pushpull::SteadyTime> next_due() const {
    if (by_time_.empty()) return std::nullopt;
    return by_time_.begin()->first;
  }

  // Drops delayed keys: the next leader derives them from the state of the cluster.
  void ShutDown() {
    is_shut_down_ = true;
    due_.clear();
    by_time_.clear();
  }
  // Shut down, nothing queued and nothing in processing.
  bool is_drained() const { return is_shut_down_ && queue_.empty() && processing_.empty(); }
  bool has_ready() const { return !queue_.empty(); }

  size_t depth() const { return queue_.size(); }

 private:
  void AddDue(pushpull::SteadyTime now) {
    while (!by_time_.empty() && by_time_.begin()->first <= now) {
      const std::string key = by_time_.begin()->second;
      by_time_.erase(by_time_.begin());
      due_.erase(key);
      Add(key);
    }
  }

  std::deque<std::string> queue_;     // ready; each is in dirty_ and not in processing_
  std::set<std::string> dirty_;       // to be handed out: queued, or added while in processing
  std::set<std::string> processing_;  // handed out and not done
  std::map<std::string, pushpull::SteadyTime> due_;                 // delayed
  std::set<std::pair<pushpull::SteadyTime, std::string>> by_time_;  // the same, earliest first
  bool is_shut_down_ = false;
};

}  // namespace pushpull_operator
