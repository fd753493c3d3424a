// SPDX-License-Identifier: Apache-2.0
//
// RingAgreement against workers that obey the rules of worker/ring_client.h in a simple way, while
// workers join, leave, die and lose their sessions, all from a seed. A failing test names its seed.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/ring_agreement.h"
#include "tests/fakes/seeds.h"

namespace pushpull {
namespace {

constexpr uint32_t kWorkers = 5;
constexpr int kEvents = 300;
constexpr int kEventsToSettle = 20000;

using ToWorker = std::variant<StopRing, FormRing, View>;
using FromWorker = std::variant<RingStopped, RingNews>;

// The history of steps that made a worker's values, which stands for their bits.
using Values = std::vector<Epoch>;

struct Worker {
  Incarnation incarnation;
  std::deque<ToWorker> inbox;
  std::deque<FromWorker> outbox;
  std::optional<Values> values;
  Epoch made_in;
  Epoch stopped;
  std::optional<FormRing> form;  // it has heard of the ring
  bool is_formed = false;
  bool has_entered = false;  // its gradients are in the ring's step
  Epoch last_ring;
  std::set<Epoch> tried_in;  // rings in which its gradients of the present step were
  bool has_had_values = false;
  bool is_leaving = false;
  bool was_given_up = false;

  std::optional<RingMark> mark() const {
    if (!values) return std::nullopt;
    return RingMark{.made_in = made_in, .step = Step{values->size()}};
  }
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < kEvents && failure_.empty(); ++i) {
      Draw(20) == 0 ? Disturb() : Proceed();
    }
  }

  // Without disturbances, until all are in one running ring that has taken a step.
  bool Settle() {
    const uint64_t before = furthest_;
    for (int i = 0; i < kEventsToSettle && failure_.empty(); ++i) {
      if (workers_.empty()) Join();
      Proceed();
      const bool is_quiet = std::all_of(workers_.begin(), workers_.end(), [](const auto& it) {
        return it.second.inbox.empty() && it.second.outbox.empty() && it.second.is_formed;
      });
      if (is_quiet && agreement_.is_running() && furthest_ > before + 1) return true;
    }
    return false;
  }

  const std::string& failure() const { return failure_; }
  // For whoever looks at a failure.
  std::string Describe() const {
    std::string text =
        absl::StrCat("furthest ", furthest_, agreement_.is_running() ? " running" : "");
    for (const auto& [id, worker] : workers_) {
      absl::StrAppend(
          &text,
          "; ",
          ToString(id),
          " stopped ",
          ToString(worker.stopped),
          worker.form ? " in " + ToString(worker.form->epoch) : "",
          worker.is_formed ? " formed" : "",
          worker.has_entered ? " entered" : "",
          worker.is_leaving ? " leaving" : "",
          " inbox ",
          worker.inbox.size(),
          " outbox ",
          worker.outbox.size(),
          worker.values
              ? absl::StrCat(" step ", worker.values->size(), " of ", ToString(worker.made_in))
              : "",
          worker.was_given_up ? " given up" : "");
    }
    return text;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  auto AnyWorker() {
    return std::next(workers_.begin(), static_cast<ptrdiff_t>(Draw(workers_.size())));
  }
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void Disturb() {
    if (workers_.empty() || Draw(3) == 0) return Join();
    const auto [id, worker] = *AnyWorker();
    switch (Draw(4)) {
      case 0:
        workers_.erase(id);
        return Apply(agreement_.Remove(id));
      case 1:
        // Its session is lost, and it registers again.
        Apply(agreement_.Remove(id));
        workers_.at(id).inbox.clear();
        workers_.at(id).outbox.clear();
        workers_.at(id).was_given_up = true;
        return Apply(agreement_.Join({{id, worker.incarnation}}));
      case 2:
        return Leave(id);
      default:
        if (worker.form) Break(id, *worker.form);
    }
  }

  void Leave(WorkerId id) {
    workers_.at(id).is_leaving = true;
    const ViewChange change = agreement_.Leave(id, Step{}, false);
    // One that no view has is told so at once.
    if (!change.activate) workers_.at(id).inbox.push_back(agreement_.active());
    Apply(change);
  }

  void Join() {
    const WorkerId id{static_cast<uint32_t>(Draw(kWorkers))};
    if (workers_.contains(id)) return;
    workers_[id] = {.incarnation = Incarnation{++incarnations_}};
    Apply(agreement_.Join({{id, workers_[id].incarnation}}));
  }

  void Break(WorkerId id, const FormRing& form) {
    Worker& worker = workers_.at(id);
    worker.form.reset();
    worker.is_formed = false;
    worker.has_entered = false;
    worker.outbox.push_back(
        RingNews{.epoch = form.epoch, .status = absl::UnavailableError("broken")});
  }

  void Apply(const ViewChange& change) {
    if (!change.failure.empty()) Fail(change.failure);
    if (change.activate) {
      CheckLeavers(*change.activate);
      last_view_ = *change.activate;
      for (auto& [id, worker] : workers_) worker.inbox.push_back(*change.activate);
    }
    for (const WorkerId id : change.stopped) {
      if (workers_.contains(id)) workers_[id].inbox.push_back(*change.stop);
    }
    if (!change.form) return;
    for (const RingWorker& member : change.form->workers) {
      if (workers_.contains(member.worker)) workers_[member.worker].inbox.push_back(*change.form);
    }
  }

  void Proceed() {
    if (workers_.empty()) return;
    const WorkerId id = AnyWorker()->first;
    Worker& worker = workers_.at(id);
    switch (Draw(4)) {
      case 0:
        if (!worker.inbox.empty()) return Deliver(id, worker);
        return;
      case 1:
        if (worker.outbox.empty()) return;
        {
          const FromWorker message = worker.outbox.front();
          worker.outbox.pop_front();
          if (const auto* stopped = std::get_if<RingStopped>(&message))
            return Apply(agreement_.OnStopped(id, *stopped));
          return Apply(agreement_.OnNews(id, std::get<RingNews>(message)));
        }
      case 2:
        return Connect(worker);
      default:
        return TakeStep(worker);
    }
  }

  void Deliver(WorkerId id, Worker& worker) {
    const ToWorker message = worker.inbox.front();
    worker.inbox.pop_front();
    if (const auto* view = std::get_if<View>(&message)) {
      const ViewMember* self = view->Find(id);
      const bool is_out = self == nullptr || self->incarnation != worker.incarnation;
      if (worker.is_leaving && is_out) Depart(id);
    } else if (const auto* stop = std::get_if<StopRing>(&message)) {
      worker.stopped = stop->epoch;
      worker.form.reset();
      worker.is_formed = false;
      worker.outbox.push_back(RingStopped{.epoch = stop->epoch, .mark = worker.mark()});
    } else if (const auto& form = std::get<FormRing>(message); form.epoch == worker.stopped) {
      if (worker.has_had_values && worker.mark() != form.mark && !IsIncluded(worker, form.mark)) {
        if (!worker.was_given_up) Fail(absl::StrCat(ToString(id), " is left behind"));
        workers_.erase(id);
        return Apply(agreement_.Remove(id));
      }
      worker.form = form;
    }
  }

  static bool IsIncluded(const Worker& worker, const RingMark& mark) {
    return worker.tried_in.contains(mark.made_in) && mark.step.value() == worker.values->size() + 1;
  }

  void Depart(WorkerId id) {
    workers_.erase(id);
    Apply(agreement_.Remove(id));
  }

  // The newest values of the job stay with somebody who stays.
  void CheckLeavers(const View& view) {
    for (const auto& [id, leaver] : workers_) {
      if (!leaver.is_leaving || leaver.was_given_up || view.Find(id) != nullptr) continue;
      if (last_view_.Find(id) == nullptr) continue;  // it was told before
      // A copy: Clang 14 lets no lambda refer to a part of a pair that was taken apart.
      const std::optional<RingMark> mark = leaver.mark();
      const bool is_kept = std::any_of(workers_.begin(), workers_.end(), [&](const auto& it) {
        return view.Find(it.first) != nullptr && it.second.mark() >= mark;
      });
      if (!is_kept && !view.members.empty())
        Fail(absl::StrCat(ToString(id), " takes the newest values along: ", Describe()));
    }
  }

  // A collective of all: everybody has heard of the ring.
  bool AllAreIn(const FormRing& form) const {
    return std::all_of(form.workers.begin(), form.workers.end(), [&](const RingWorker& it) {
      const auto worker = workers_.find(it.worker);
      return worker != workers_.end() && worker->second.form &&
             worker->second.form->epoch == form.epoch;
    });
  }

  void Connect(Worker& worker) {
    if (!worker.form || worker.is_formed || !AllAreIn(*worker.form)) return;
    const FormRing& form = *worker.form;
    if (worker.mark() != form.mark) worker.tried_in.clear();
    const Worker& source = workers_.at(form.workers[form.source].worker);
    if (form.is_fresh) {
      worker.values.emplace();
      worker.made_in = {};
    } else if (source.mark() != form.mark) {
      // It has gone on, so this worker has the values already.
      if (worker.mark() < form.mark) return;
    } else {
      worker.values = source.values;
      worker.made_in = source.made_in;
    }
    worker.is_formed = true;
    worker.has_had_values = true;
    worker.has_entered = false;
    worker.last_ring = form.epoch;
    worker.outbox.push_back(RingNews{.epoch = form.epoch, .status = absl::OkStatus()});
  }

  // First its gradients are there; when those of all are, each worker ends the step when it does.
  void TakeStep(Worker& worker) {
    if (!worker.form || !worker.is_formed) return;
    if (!worker.has_entered) {
      worker.has_entered = true;
      worker.tried_in.insert(worker.form->epoch);
      return;
    }
    const size_t step = worker.values->size();
    for (const RingWorker& it : worker.form->workers) {
      const auto other = workers_.find(it.worker);
      if (other == workers_.end() || other->second.last_ring != worker.form->epoch) return;
      const bool is_there = other->second.has_entered && other->second.values->size() >= step;
      if (!is_there && other->second.values->size() <= step) return;
    }
    worker.values->push_back(worker.form->epoch);
    worker.made_in = worker.form->epoch;
    worker.has_entered = false;
    worker.tried_in.clear();
    furthest_ = std::max<uint64_t>(furthest_, worker.values->size());
    CheckEqual();
  }

  // Equal marks mean equal bits.
  void CheckEqual() {
    std::map<RingMark, Values> known;
    for (const auto& [id, worker] : workers_) {
      if (!worker.values) continue;
      const auto [other, is_new] = known.emplace(*worker.mark(), *worker.values);
      if (!is_new && other->second != *worker.values)
        Fail(absl::StrCat(ToString(id), " has other values with the same mark"));
    }
  }

  std::mt19937_64 random_;
  const SavedState saved_;
  RingAgreement agreement_{Term{1}, 5, {.mode = SyncMode::kAllReduce}, saved_};
  std::map<WorkerId, Worker> workers_;
  View last_view_;
  uint64_t incarnations_ = 0;
  uint64_t furthest_ = 0;
  std::string failure_;
};

TEST(RingAgreementSeedsTest, EveryRingEndsInOneThatTakesSteps) {
  const Seeds seeds = SeedsToRun(2000);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Simulation simulation(seed);
    simulation.Run();

    const bool has_settled = simulation.Settle();

    ASSERT_EQ(simulation.failure(), "") << "seed " << seed << ": " << simulation.Describe();
    ASSERT_TRUE(has_settled) << "seed " << seed << ": " << simulation.Describe();
  }
}

}  // namespace
}  // namespace pushpull
