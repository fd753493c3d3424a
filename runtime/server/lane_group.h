// SPDX-License-Identifier: Apache-2.0
//
// A server's lanes: each is used and destroyed on its own thread, and queried from the control
// thread.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/server/lane.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane.h"

namespace pushpull {

// Thread-confined to the control executor, which outlives it, as `transport` does.
class LaneGroup {
 public:
  // `make` is called for each lane of the transport.
  LaneGroup(Transport& transport,
            Executor& control,
            const std::function<std::shared_ptr<Lane>(size_t index)>& make);
  LaneGroup(const LaneGroup&) = delete;
  LaneGroup& operator=(const LaneGroup&) = delete;
  // Each lane ends on its own thread, after everything posted to it earlier.
  ~LaneGroup();

  size_t size() const { return lanes_.size(); }
  size_t IndexOf(ShardId shard) const { return LaneOf(shard, size()); }
  // Call only on this lane's thread.
  Lane& lane(size_t index) { return *lanes_[index]; }

  // Runs `task` on one lane's thread, or on all.
  void Post(size_t index, std::function<void(Lane&)> task);
  void PostToAll(const std::function<void(Lane&)>& task);

  // Runs `ask` on every lane's thread and `done` with all answers, in lane order, on the control
  // executor; never after this object has ended.
  template <typename Question, typename Done>
  void Ask(Question ask, Done done) {
    using Answer = std::invoke_result_t<Question, Lane&>;
    struct Gathered {
      std::vector<Answer> answers;
      size_t missing;
    };
    const auto gathered = std::make_shared<Gathered>(Gathered{std::vector<Answer>(size()), size()});
    for (size_t i = 0; i < size(); ++i) {
      Post(i, [=, this_lives = std::weak_ptr<bool>(alive_), &control = control_](Lane& lane) {
        // The answers are gathered on the control thread only.
        control.Post([=, answer = ask(lane)] {
          gathered->answers[i] = answer;
          if (--gathered->missing == 0 && !this_lives.expired()) done(gathered->answers);
        });
      });
    }
  }

  // Posts a task to a shard's lane from another thread without keeping the lanes alive: a lane must
  // end on its own thread. Ignored if the lane has ended by the task's turn.
  using Remote = std::function<void(ShardId shard, std::function<void(Lane&)> task)>;
  Remote remote() const;

 private:
  Transport& transport_;
  Executor& control_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pushpull
