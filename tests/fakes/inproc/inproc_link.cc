// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/inproc_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "tests/fakes/inproc/inproc_end.h"

namespace pushpull {

void InprocNode::Post(size_t lane, std::function<void()> task) {
  // Shared, so that a task which is dropped ends here, after the lock: it may hold a channel. One
  // that runs is taken out first, so that it ends on its lane.
  const auto shared = std::make_shared<std::function<void()>>(std::move(task));
  MutexLock lock(mu_);
  if (lane < lanes_.size()) lanes_[lane]->Post([shared] { std::exchange(*shared, nullptr)(); });
}

void InprocNode::Leave() {
  MutexLock lock(mu_);
  lanes_.clear();
}

void InprocLink::SetEnds(const std::shared_ptr<InprocEnd>& connecting,
                         const std::shared_ptr<InprocEnd>& accepting) {
  ends_ = {connecting, accepting};
}

void InprocLink::Post(size_t side, std::function<void(InprocEnd&)> task) {
  sides_.at(side).node->Post(sides_.at(side).lane, [end = ends_.at(side), task = std::move(task)] {
    if (const auto alive = end.lock()) task(*alive);
  });
}

void InprocLink::CloseFrom(size_t side) {
  {
    MutexLock lock(mu_);
    if (std::exchange(state_, State::kEnded) == State::kCut)
      return;  // the notification does not get through
  }
  Post(1 - side, [](InprocEnd& end) { end.Fail(absl::UnavailableError("closed the connection")); });
}

void InprocLink::Break() {
  {
    MutexLock lock(mu_);
    if (state_ != State::kOpen) return;
    state_ = State::kEnded;
  }
  for (const size_t side : {size_t{0}, size_t{1}}) {
    Post(side, [](InprocEnd& end) { end.Fail(absl::UnavailableError("connection reset")); });
  }
}

void InprocLink::Cut(Duration timeout) {
  {
    MutexLock lock(mu_);
    if (state_ != State::kOpen) return;
    state_ = State::kCut;
  }
  for (const size_t side : {size_t{0}, size_t{1}}) {
    Post(side, [timeout](InprocEnd& end) { end.FailAfter(timeout); });
  }
}

bool InprocLink::is_open() const {
  MutexLock lock(mu_);
  return state_ == State::kOpen;
}

bool InprocLink::CopyPayload(const Flight& flight, std::span<std::byte> place) const {
  MutexLock lock(mu_);
  if (state_ != State::kOpen) return false;
  if (!place.empty()) std::copy_n(flight.payload.bytes.begin(), place.size(), place.begin());
  return true;
}

Payload InprocLink::TakePayload(Flight& flight) {
  MutexLock lock(mu_);
  return std::exchange(flight.payload, Payload{});
}

}  // namespace pushpull
