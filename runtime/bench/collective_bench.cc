// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_bench.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/bench/collective_rank.h"
#include "runtime/bench/control_socket.h"
#include "runtime/bench/job_process.h"
#include "runtime/bench/option_range.h"
#include "runtime/bench/rank_processes.h"
#include "runtime/transport/shm/descriptor_inbox.h"

namespace pushpull {
namespace {

constexpr Duration kRanksStartTimeout = std::chrono::seconds(60);
constexpr Duration kRanksAnswerTimeout = std::chrono::seconds(300);
constexpr Duration kRanksEndTimeout = std::chrono::seconds(30);
constexpr uint64_t kArrayBytesMax = 4'000'000'000;
constexpr uint32_t kRepeatsMax = 100'000;

std::string AddressOf(const CollectiveOptions& options, uint32_t rank) {
  return options.places.empty() ? "127.0.0.1" : options.places[rank].address;
}

std::vector<std::string> CommandOf(const CollectiveOptions& options,
                                   const std::string& program,
                                   const std::string& control,
                                   uint32_t rank) {
  std::vector<std::string> command = {program,
                                      "bench",
                                      "collective-rank",
                                      "--control",
                                      control,
                                      "--address",
                                      AddressOf(options, rank),
                                      "--rank",
                                      absl::StrCat(rank)};
  if (options.places.empty()) return command;
  const std::vector<std::string> there = {
      "/usr/bin/env", "ip", "netns", "exec", options.places[rank].network};
  command.insert(command.begin(), there.begin(), there.end());
  return command;
}

absl::Status CheckPlaces(const CollectiveOptions& options) {
  if (options.places.empty()) return absl::OkStatus();
  if (options.channel != "tcp")
    return absl::InvalidArgumentError("--at: needs --channel tcp: networks share no memory");
  if (options.places.size() != options.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--at: has ", options.places.size(), " places for --ranks ", options.ranks));
  }
  return absl::OkStatus();
}

class CollectiveBench {
 public:
  CollectiveBench(const CollectiveOptions& options,
                  RankProcesses& processes,
                  const std::atomic<bool>& is_stopped)
      : options_(options), processes_(processes), is_stopped_(is_stopped) {}

  absl::StatusOr<std::vector<CollectiveMeasurement>> Run(ControlListener& listener) {
    PUSHPULL_RETURN_IF_ERROR(Connect(listener));
    std::vector<CollectiveMeasurement> all;
    for (const uint64_t bytes : options_.bytes) {
      PUSHPULL_ASSIGN_OR_RETURN(std::vector<CollectiveMeasurement> measured, MeasureInTurns(bytes));
      std::move(measured.begin(), measured.end(), std::back_inserter(all));
    }
    PUSHPULL_RETURN_IF_ERROR(TellAll({.kind = RankOrderKind::kLeave}));
    return all;
  }

 private:
  static constexpr uint32_t kRepeatsOfTurn = 10;

  bool is_shm() const { return options_.channel == "shm"; }
  uint64_t LargestBytes() const {
    return *std::max_element(options_.bytes.begin(), options_.bytes.end());
  }

  absl::Status Connect(ControlListener& listener) {
    const Deadline deadline = Deadline::After(kRanksStartTimeout);
    RankPlan plan = {.group = RandomToken(),
                     .ranks = options_.ranks,
                     .channel = is_shm() ? LinkChannel::kShm : LinkChannel::kTcp,
                     .shared_bytes = is_shm() && !options_.has_private_arrays ? LargestBytes() : 0};
    for (uint32_t i = 0; i < options_.ranks; ++i) {
      PUSHPULL_ASSIGN_OR_RETURN(ControlSocket rank, AcceptFromRank(listener, deadline));
      PUSHPULL_ASSIGN_OR_RETURN(const RankPort port, rank.Receive<RankPort>(deadline));
      if (port.rank >= options_.ranks)
        return absl::InternalError(absl::StrCat("rank ", port.rank, " has called"));
      plan.ports[port.rank] = static_cast<uint16_t>(port.port);
      const std::string address = AddressOf(options_, port.rank);
      absl::c_copy(address, plan.addresses[port.rank].begin());
      ranks_.push_back(std::move(rank));
    }
    for (ControlSocket& rank : ranks_) PUSHPULL_RETURN_IF_ERROR(rank.Send(plan, deadline));
    return AwaitAll(nullptr);
  }

  // A rank that ends before it connects closes no connection, so its end is checked once a second.
  absl::StatusOr<ControlSocket> AcceptFromRank(ControlListener& listener, Deadline deadline) {
    while (true) {
      absl::StatusOr<ControlSocket> rank =
          listener.Accept(Deadline::After(std::chrono::seconds(1)));
      if (!absl::IsDeadlineExceeded(rank.status()) || deadline.has_passed()) return rank;
      if (processes_.has_failed()) return absl::UnavailableError("a rank has ended");
    }
  }

  absl::Status TellAll(const RankOrder& order) {
    for (ControlSocket& rank : ranks_)
      PUSHPULL_RETURN_IF_ERROR(rank.Send(order, Deadline::After(kRanksAnswerTimeout)));
    return absl::OkStatus();
  }

  absl::Status AwaitAll(CollectiveMeasurement* measured) {
    const Deadline deadline = Deadline::After(kRanksAnswerTimeout);
    for (ControlSocket& rank : ranks_) {
      if (measured != nullptr) PUSHPULL_RETURN_IF_ERROR(TakeTimes(rank, deadline, *measured));
      PUSHPULL_ASSIGN_OR_RETURN(const RankDone done, rank.Receive<RankDone>(deadline));
      if (measured == nullptr) continue;
      measured->used = done.used;
      measured->bytes_sent = std::max(measured->bytes_sent, done.bytes_sent);
      measured->is_verified = measured->is_verified && done.is_right != 0;
    }
    return absl::OkStatus();
  }

  // The slowest rank counts.
  absl::Status TakeTimes(ControlSocket& rank, Deadline deadline, CollectiveMeasurement& measured) {
    std::vector<int64_t> times(measured.seconds.size());
    PUSHPULL_RETURN_IF_ERROR(rank.Receive(std::span<int64_t>(times), deadline));
    for (size_t i = 0; i < times.size(); ++i)
      measured.seconds[i] = std::max(measured.seconds[i], static_cast<double>(times[i]) * 1e-9);
    return absl::OkStatus();
  }

  // Every algorithm, in turns, so that a disturbance of the machine affects all of them.
  absl::StatusOr<std::vector<CollectiveMeasurement>> MeasureInTurns(uint64_t bytes) {
    std::vector<CollectiveMeasurement> all;
    for (const Algorithm algorithm : options_.algorithms)
      all.push_back({.bytes = bytes, .algorithm = algorithm, .is_verified = true});
    const uint32_t turns =
        all.size() == 1 ? 1 : (options_.repeats + kRepeatsOfTurn - 1) / kRepeatsOfTurn;
    for (uint32_t turn = 0; turn < turns; ++turn) {
      const uint32_t repeats =
          options_.repeats * (turn + 1) / turns - options_.repeats * turn / turns;
      for (CollectiveMeasurement& one : all) {
        if (is_stopped_) return absl::CancelledError("stopped by a signal");
        PUSHPULL_RETURN_IF_ERROR(Measure(repeats, one));
      }
    }
    return all;
  }

  // Adds to what was measured so far.
  absl::Status Measure(uint32_t repeats, CollectiveMeasurement& measured) {
    CollectiveMeasurement turn = {.seconds = std::vector<double>(repeats), .is_verified = true};
    PUSHPULL_RETURN_IF_ERROR(TellAll({.kind = RankOrderKind::kRun,
                                      .repeats = repeats,
                                      .bytes = measured.bytes,
                                      .collective = options_.collective,
                                      .algorithm = measured.algorithm}));
    PUSHPULL_RETURN_IF_ERROR(AwaitAll(&turn));
    measured.seconds.insert(measured.seconds.end(), turn.seconds.begin(), turn.seconds.end());
    measured.used = turn.used;
    measured.bytes_sent = turn.bytes_sent;
    measured.is_verified = measured.is_verified && turn.is_verified;
    return absl::OkStatus();
  }

  const CollectiveOptions& options_;
  RankProcesses& processes_;
  const std::atomic<bool>& is_stopped_;
  std::vector<ControlSocket> ranks_;
};

}  // namespace

absl::Status Validate(const CollectiveOptions& options) {
  PUSHPULL_RETURN_IF_ERROR(CheckBetween("ranks", options.ranks, 1, kRanksMax));
  PUSHPULL_RETURN_IF_ERROR(CheckBetween("repeats", options.repeats, 1, kRepeatsMax));
  for (const uint64_t bytes : options.bytes) {
    PUSHPULL_RETURN_IF_ERROR(CheckBetween("bytes", bytes, sizeof(float), kArrayBytesMax));
    if (bytes % sizeof(float) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bytes: must be a multiple of 4 (float32), is ", bytes));
    }
  }
  PUSHPULL_RETURN_IF_ERROR(CheckPlaces(options));
  if (options.channel == "shm" || options.channel == "tcp") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--channel: must be shm or tcp, is \"", options.channel, "\""));
}

absl::StatusOr<std::vector<CollectiveMeasurement>> RunCollectiveBench(
    const CollectiveOptions& options,
    const std::string& program,
    const std::map<std::string, std::string>& environment,
    const std::atomic<bool>& is_stopped) {
  PUSHPULL_ASSIGN_OR_RETURN(const BenchFolder folder, BenchFolder::Make(environment));
  const std::string control = folder.path() + "/control";
  PUSHPULL_ASSIGN_OR_RETURN(ControlListener listener, ControlListener::Listen(control));
  RankProcesses processes;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    PUSHPULL_RETURN_IF_ERROR(processes.Start(
        absl::StrCat("rank ", rank), CommandOf(options, program, control, rank), environment));
  }
  absl::StatusOr<std::vector<CollectiveMeasurement>> measured =
      CollectiveBench(options, processes, is_stopped).Run(listener);
  if (absl::IsCancelled(measured.status())) return measured;
  if (!measured.ok()) return processes.Explain(measured.status());
  PUSHPULL_RETURN_IF_ERROR(processes.WaitForEnd(Deadline::After(kRanksEndTimeout)));
  return measured;
}

}  // namespace pushpull
