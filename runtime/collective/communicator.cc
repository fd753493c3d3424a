// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Over shared memory an all-reduce proceeds in blocks with this many bytes per rank: two pieces and
// the contents of the rings stay in the cache. Over sockets the kernel's copies would have left it
// by then, and each block would cost a wait.
constexpr size_t kPieceBytes = 256 * 1024;

// A program makes calls of few different sizes; those of one step fit.
constexpr size_t kSchedulesKept = 32;

// More sizes than this are no fixed set; those beyond it are not tried.
constexpr size_t kTrialsMax = kSchedulesKept;

// About as long as it takes to put a thread to sleep and wake it.
constexpr Duration kSpin = std::chrono::microseconds(30);

// Tells the core that this thread waits, so that its hyperthread sibling gets more of the core.
void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Communicator::Communicator(uint32_t rank, LinkSet links)
    : rank_(rank), links_count_(links.links.size()), links_(std::move(links)), runner_(links_) {
  PUSHPULL_CHECK(rank < links_count_);
  const bool are_cheap =
      std::all_of(links_.links.begin(), links_.links.end(), [](const auto& link) {
        return link == nullptr || link->is_cheap_to_try();
      });
  if (!are_cheap) return;
  // So all ranks are on this host.
  piece_bytes_ = kPieceBytes;
  // If they share cores, spinning takes the core from the awaited rank.
  if (links_count_ <= std::thread::hardware_concurrency()) spin_ = kSpin;
}

absl::Status Communicator::AllReduce(std::span<std::byte> values,
                                     const ReductionOp& op,
                                     Algorithm algorithm,
                                     Deadline deadline) {
  return Reduce(Collective::kAllReduce, values, op, algorithm, deadline);
}

absl::StatusOr<ElementRange> Communicator::ReduceScatter(std::span<std::byte> values,
                                                         const ReductionOp& op,
                                                         Algorithm algorithm,
                                                         Deadline deadline) {
  PUSHPULL_RETURN_IF_ERROR(Reduce(Collective::kReduceScatter, values, op, algorithm, deadline));
  return PieceOf(
      values.size() / op.element_bytes(), static_cast<int>(links_count_), static_cast<int>(rank_));
}

absl::Status Communicator::AllGather(std::span<std::byte> values,
                                     size_t element_bytes,
                                     Algorithm algorithm,
                                     Deadline deadline) {
  return Run({.collective = Collective::kAllGather,
              .algorithm = algorithm,
              .values = values,
              .element_bytes = element_bytes},
             deadline);
}

absl::Status Communicator::Broadcast(std::span<std::byte> values,
                                     uint32_t root,
                                     Algorithm algorithm,
                                     Deadline deadline) {
  return Run({.collective = Collective::kBroadcast,
              .algorithm = algorithm,
              .values = values,
              .element_bytes = 1,
              .root = root},
             deadline);
}

absl::Status Communicator::Reduce(Collective collective,
                                  std::span<std::byte> values,
                                  const ReductionOp& op,
                                  Algorithm algorithm,
                                  Deadline deadline) {
  return Run({.collective = collective,
              .algorithm = algorithm,
              .values = values,
              .element_bytes = op.element_bytes(),
              .op = &op},
             deadline);
}

absl::Status Communicator::Check(const Call& call) const {
  if (!broken_.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the communicator has ended; connect the ranks anew: ", broken_.message()));
  }
  const std::string name =
      absl::StrCat("rank ", rank_, " of ", links_count_, ": ", ToString(call.collective), ": ");
  if (call.element_bytes == 0 || call.element_bytes > kCustomElementBytesMax ||
      call.values.size() % call.element_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(name,
                                                   call.values.size(),
                                                   " bytes are no whole number of elements of ",
                                                   call.element_bytes,
                                                   " bytes"));
  }
  if (call.root >= links_count_)
    return absl::InvalidArgumentError(absl::StrCat(name, "there is no root ", call.root));
  return absl::OkStatus();
}

const AlgorithmTrial* Communicator::FindTrial(Collective collective, uint64_t num_bytes) const {
  const auto trial = trials_.find({collective, num_bytes});
  return trial == trials_.end() ? nullptr : &trial->second;
}

AlgorithmTrial* Communicator::TrialFor(const Call& call) {
  const bool is_tried = call.algorithm == Algorithm::kAuto &&
                        call.values.size() >= tried_.bytes_min &&
                        absl::c_linear_search(tried_.collectives, call.collective);
  if (!is_tried) return nullptr;
  const std::pair key(call.collective, uint64_t{call.values.size()});
  const auto known = trials_.find(key);
  if (known != trials_.end()) return &known->second;
  if (trials_.size() >= kTrialsMax) return nullptr;
  const int ranks = static_cast<int>(links_count_);
  AlgorithmTrial made(CandidatesFor(call.collective, ranks, call.values.size()));
  return &trials_.emplace(key, std::move(made)).first->second;
}

const PreparedSchedule& Communicator::ScheduleFor(const ScheduleRequest& request) {
  for (const CachedSchedule& cached : schedules_) {
    if (cached.request == request) return *cached.schedule;
  }
  CachedSchedule made = {.request = request,
                         .schedule = std::make_unique<PreparedSchedule>(MakeSchedule(request))};
  if (schedules_.size() < kSchedulesKept) {
    schedules_.push_back(std::move(made));
    return *schedules_.back().schedule;
  }
  CachedSchedule& replaced = schedules_[next_replaced_++ % kSchedulesKept];
  replaced = std::move(made);
  return *replaced.schedule;
}

absl::Status Communicator::Run(Call call, Deadline deadline) {
  PUSHPULL_RETURN_IF_ERROR(Check(call));
  AlgorithmTrial* const trial = TrialFor(call);
  if (trial != nullptr) {
    call.algorithm = trial->next();
  } else if (call.algorithm == Algorithm::kAuto) {
    call.algorithm = GuessFor(static_cast<int>(links_count_), call.values.size());
  }
  const uint64_t elements = call.values.size() / call.element_bytes;
  const PreparedSchedule& schedule =
      ScheduleFor({.collective = call.collective,
                   .algorithm = call.algorithm,
                   .ranks = static_cast<int>(links_count_),
                   .rank = static_cast<int>(rank_),
                   .elements = elements,
                   .root = static_cast<int>(call.root),
                   .needs_finish = call.op != nullptr && call.op->NeedsFinish(links_count_),
                   .block_elements = piece_bytes_ * links_count_ / call.element_bytes});
  if (schedule.needs_scratch() && scratch_.size() < call.values.size())
    scratch_.resize(call.values.size());
  const CallHeader header = {.sequence = ++num_calls_,
                             .collective = call.collective,
                             .algorithm = call.algorithm,
                             .root = call.root,
                             .element_bytes = static_cast<uint32_t>(call.element_bytes),
                             .elements = elements,
                             .op = call.op == nullptr ? 0 : call.op->fingerprint()};
  runner_.Begin({.schedule = &schedule,
                 .header = header,
                 .ranks = links_count_,
                 .values = call.values,
                 .scratch = scratch_,
                 .op = call.op});
  const SteadyTime begin = std::chrono::steady_clock::now();
  const absl::Status done = Finish(deadline);
  if (!done.ok()) return Break(header, call.op, done);
  if (trial == nullptr || trial->is_over()) return absl::OkStatus();
  return Measured(call, *trial, std::chrono::steady_clock::now() - begin, deadline);
}

// A call lasts as long as on the slowest rank. With the same times all ranks conclude the same.
absl::Status Communicator::Measured(const Call& call,
                                    AlgorithmTrial& trial,
                                    Duration elapsed,
                                    Deadline deadline) {
  trial.Add(ToSeconds(elapsed));
  if (trial.due().empty()) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(AllReduce(std::as_writable_bytes(trial.due()),
                                     ReductionOp(ElementKind::kFloat64, ElementOp::kMax),
                                     Algorithm::kTree,
                                     deadline));
  trial.Conclude();
  if (trial.is_over())
    ended_trials_.push_back({call.collective, call.values.size(), trial.results()});
  return absl::OkStatus();
}

absl::Status Communicator::Finish(Deadline deadline) {
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(const bool has_moved, runner_.Advance());
    if (runner_.is_done()) return absl::OkStatus();
    if (!has_moved) {
      PUSHPULL_RETURN_IF_ERROR(Wait(deadline));
    } else if (deadline.has_passed()) {
      return LateError();
    }
  }
}

absl::Status Communicator::Wait(Deadline deadline) {
  if (interrupt_ != nullptr && interrupt_->is_set()) return absl::CancelledError("interrupted");
  const SteadyTime spin_end = std::chrono::steady_clock::now() + spin_;
  while (spin_ > Duration::zero() && std::chrono::steady_clock::now() < spin_end) {
    Pause();
    PUSHPULL_ASSIGN_OR_RETURN(const bool has_moved, runner_.Advance());
    if (has_moved || runner_.is_done()) return absl::OkStatus();
  }
  const std::vector<LinkWants>& wants = runner_.Wants();
  for (size_t peer = 0; peer < wants.size(); ++peer) {
    if (links_.links[peer] != nullptr) links_.links[peer]->Arm(wants[peer]);
  }
  absl::StatusOr<bool> has_moved = runner_.Advance();
  absl::Status slept = has_moved.status();
  if (has_moved.ok() && !*has_moved && !runner_.is_done()) slept = Sleep(wants, deadline);
  for (const std::unique_ptr<PeerLink>& link : links_.links) {
    if (link != nullptr) link->Disarm();
  }
  return slept;
}

absl::Status Communicator::Sleep(const std::vector<LinkWants>& wants, Deadline deadline) {
  polled_.clear();
  polled_ranks_.clear();
  for (size_t peer = 0; peer < wants.size(); ++peer) {
    if (links_.links[peer] == nullptr || !(wants[peer].bytes || wants[peer].room)) continue;
    polled_.push_back(links_.links[peer]->WaitFor(wants[peer]));
    polled_ranks_.push_back(peer);
  }
  // poll ignores a negative descriptor.
  const int interrupt = interrupt_ == nullptr ? -1 : interrupt_->descriptor();
  polled_.push_back({.fd = interrupt, .events = POLLIN, .revents = 0});
  if (links_.doorbell.is_open())
    polled_.push_back({.fd = links_.doorbell.get(), .events = POLLIN, .revents = 0});
  const int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  const int ready =
      poll(polled_.data(),
           polled_.size(),
           static_cast<int>(std::min<int64_t>(left, std::numeric_limits<int>::max())));
  if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll");
  if (ready <= 0) return deadline.has_passed() ? LateError() : absl::OkStatus();
  for (size_t i = 0; i < polled_ranks_.size(); ++i)
    links_.links[polled_ranks_[i]]->OnReady(polled_[i].revents);
  if (links_.doorbell.is_open() && polled_.back().revents != 0) {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t got = read(links_.doorbell.get(), &rung, sizeof rung);
  }
  return absl::OkStatus();
}

absl::Status Communicator::LateError() {
  std::string awaited;
  const std::vector<LinkWants>& wants = runner_.Wants();
  for (size_t peer = 0; peer < wants.size(); ++peer) {
    if (wants[peer].bytes) absl::StrAppend(&awaited, ", for what rank ", peer, " sends");
    if (wants[peer].room) absl::StrAppend(&awaited, ", for rank ", peer, " to take more");
  }
  return absl::DeadlineExceededError(absl::StrCat("has waited until its deadline", awaited));
}

absl::Status Communicator::Break(const CallHeader& header,
                                 const ReductionOp* op,
                                 const absl::Status& why) {
  const bool is_of_peer = runner_.failure().peer >= 0;
  broken_ = absl::Status(
      why.code(),
      absl::StrCat("rank ",
                   rank_,
                   " of ",
                   links_count_,
                   ": ",
                   ToString(header),
                   op == nullptr ? "" : absl::StrCat(" (", op->name(), ")"),
                   ": ",
                   is_of_peer ? absl::StrCat("rank ", runner_.failure().peer, " ") : "",
                   why.message()));
  for (std::unique_ptr<PeerLink>& link : links_.links) link.reset();
  links_.doorbell.Reset();
  return broken_;
}

}  // namespace pushpull
