// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/sim_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pushpull {

bool SimScheduler::RunOne() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  const SteadyTime earliest = node.mapped().executor->stopped_until_;
  if (node.key().first < earliest) {
    node.key().first = times_[node.key().second] = earliest;
    events_.insert(std::move(node));
    return true;
  }
  times_.erase(node.key().second);
  now_ = std::max(now_, node.key().first);
  node.mapped().task();
  return true;
}

void SimScheduler::RunUntilIdle() {
  RunFor(Duration::zero());
}

void SimScheduler::RunFor(Duration duration) {
  const SteadyTime end = now_ + duration;
  while (!events_.empty() && events_.begin()->first.first <= end) RunOne();
  now_ = end;
}

bool SimScheduler::RunUntil(const std::function<bool()>& condition, Duration limit) {
  const SteadyTime end = now_ + limit;
  while (!condition()) {
    if (events_.empty() || events_.begin()->first.first > end) return false;
    RunOne();
  }
  return true;
}

uint64_t SimScheduler::Add(const SimExecutor& executor,
                           SteadyTime when,
                           std::function<void()> task) {
  const uint64_t sequence = next_sequence_++;
  const SteadyTime time = std::max(when, now_);
  events_.emplace(Key(time, sequence), Event{&executor, std::move(task)});
  times_.emplace(sequence, time);
  return sequence;
}

void SimScheduler::Remove(uint64_t sequence) {
  const auto it = times_.find(sequence);
  if (it == times_.end()) return;
  const Key key(it->second, sequence);
  times_.erase(it);
  // Destroyed last: what the task holds may cancel events in turn.
  const auto node = events_.extract(key);
}

void SimScheduler::RemoveAll(const SimExecutor& executor) {
  std::vector<uint64_t> sequences;
  for (const auto& [key, event] : events_) {
    if (event.executor == &executor) sequences.push_back(key.second);
  }
  for (const uint64_t sequence : sequences) Remove(sequence);
}

}  // namespace pushpull
