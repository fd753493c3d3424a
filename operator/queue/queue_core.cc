// SPDX-License-Identifier: Apache-2.0
#include "operator/queue/queue_core.h"

namespace pushpull_operator {

using pushpull::SteadyTime;

void QueueCore::Add(const std::string& key) {
  if (is_shut_down_ || !dirty_.insert(key).second) return;
  if (!processing_.contains(key)) queue_.push_back(key);
}

void QueueCore::AddAt(const std::string& key, SteadyTime when) {
  if (is_shut_down_) return;
  const auto [entry, is_new] = due_.try_emplace(key, when);
  if (!is_new) {
    if (entry->second <= when) return;
    by_time_.erase({entry->second, key});
    entry->second = when;
  }
  by_time_.insert({when, key});
}

void QueueCore::AddDue(SteadyTime now) {
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    const std::string key = by_time_.begin()->second;
    by_time_.erase(by_time_.begin());
    due_.erase(key);
    Add(key);
  }
}

std::optional<std::string> QueueCore::Take(SteadyTime now) {
  AddDue(now);
  if (queue_.empty()) return std::nullopt;
  std::string key = std::move(queue_.front());
  queue_.pop_front();
  dirty_.erase(key);
  processing_.insert(key);
  return key;
}

void QueueCore::Done(const std::string& key) {
  if (processing_.erase(key) > 0 && dirty_.contains(key)) queue_.push_back(key);
}

std::optional<SteadyTime> QueueCore::next_due() const {
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

void QueueCore::ShutDown() {
  is_shut_down_ = true;
  due_.clear();
  by_time_.clear();
}

}  // namespace pushpull_operator
