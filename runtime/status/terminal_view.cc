// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/terminal_view.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "runtime/base/printable.h"
#include "runtime/consistency/view.h"
#include "runtime/metrics/sync_phase.h"

namespace pushpull {
namespace {

constexpr size_t kPhasesShown = 4;
constexpr size_t kBarMax = 24;  // characters for a whole step
// How many of the newest points to average for the phases: enough to be steady.
constexpr size_t kPointsMeant = 5;
constexpr size_t kEventsShown = 5;
constexpr size_t kMembersMin = 4;

// A row of the table of members.
struct MemberRow {
  int urgency = 0;  // lower ones are shown first
  std::string text;
};

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.*f ms", seconds < 0.1 ? 2 : 0, seconds * 1e3);
}

std::string BytesPerSecond(double bytes) {
  return absl::StrFormat("%.1f MiB/s", bytes / (1 << 20));
}

std::string TimeOfDay(double unix_seconds) {
  const auto whole = static_cast<time_t>(unix_seconds);
  std::tm local{};
  localtime_r(&whole, &local);
  return absl::StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
}

size_t NumMembers(const JobStatus& status) {
  return static_cast<size_t>(absl::c_count_if(
      status.workers, [](const WorkerStatus& worker) { return worker.is_member; }));
}

std::string Figures(const StatusHistory& history) {
  const JobStatus& status = *history.status();
  std::string line = absl::StrFormat("step %d", status.step.value());
  if (!history.points().empty())
    absl::StrAppendFormat(&line, "   %.0f samples/s", history.points().back().samples_per_second);
  if (!status.losses.empty())
    absl::StrAppendFormat(&line, "   loss %.4f", status.losses.back().loss);
  if (status.sync_seconds.count() > 0) {
    absl::StrAppend(&line,
                    "   sync p50 ",
                    Milliseconds(status.sync_seconds.At(0.5)),
                    ", p99 ",
                    Milliseconds(status.sync_seconds.At(0.99)));
  }
  return line;
}

// Each phase's share of a step in the newest points, the largest first.
std::vector<std::pair<double, absl::string_view>> PhaseShares(const StatusHistory& history) {
  const std::deque<HistoryPoint>& points = history.points();
  std::array<double, kSyncPhaseCount> sums{};
  double whole = 0;
  for (size_t i = points.size() - std::min(points.size(), kPointsMeant); i < points.size(); ++i) {
    for (size_t phase = 0; phase < kSyncPhaseCount; ++phase) {
      const double seconds = points[i].phase_seconds[phase] * static_cast<double>(points[i].syncs);
      sums[phase] += seconds;
      whole += seconds;
    }
  }
  std::vector<std::pair<double, absl::string_view>> shares;
  for (size_t phase = 0; phase < kSyncPhaseCount && whole > 0; ++phase)
    shares.emplace_back(sums[phase] / whole, kSyncPhaseNames[phase]);
  std::ranges::sort(shares, std::greater<>());
  return shares;
}

std::string Phases(const StatusHistory& history) {
  std::string line;
  const std::vector<std::pair<double, absl::string_view>> shares = PhaseShares(history);
  for (size_t i = 0; i < std::min(shares.size(), kPhasesShown); ++i) {
    const auto& [share, name] = shares[i];
    const auto length = static_cast<size_t>(share * kBarMax + 0.5);
    absl::StrAppendFormat(&line,
                          "%s%s %s %.0f %%",
                          i == 0 ? "phases   " : "   ",
                          name,
                          std::string(length, '#'),
                          share * 100);
  }
  return line;
}

std::string Members(const StatusHistory& history) {
  const JobStatus& status = *history.status();
  std::string line = absl::StrFormat("%d of %d workers   %d of %d servers",
                                     NumMembers(status),
                                     status.desired_workers,
                                     status.servers.size(),
                                     status.desired_servers);
  if (status.shards_moving > 0)
    absl::StrAppend(&line, ", ", status.shards_moving, " shards to move");
  if (history.points().empty()) return line;
  const HistoryPoint& newest = history.points().back();
  absl::StrAppend(&line,
                  "   pushed ",
                  BytesPerSecond(newest.pushed_per_second),
                  "   pulled ",
                  BytesPerSecond(newest.pulled_per_second));
  if (newest.replicated_per_second > 0)
    absl::StrAppend(&line, "   replicated ", BytesPerSecond(newest.replicated_per_second));
  return line;
}

void AddProblems(const JobStatus& status, std::vector<std::string>& lines) {
  if (!status.failure.empty()) lines.push_back("failed: " + status.failure);
  if (status.stall) lines.push_back("late: " + ToString(*status.stall));
  for (const Culprit& culprit : status.culprits) lines.push_back("slow: " + ToString(culprit));
  if (status.is_mode_changing) lines.push_back("the mode is changing");
  if (status.is_batch_changing()) {
    lines.push_back(absl::StrFormat("the batch is changing to %d samples", status.global_batch));
  }
  if (!status.mode_problem.empty()) lines.push_back(status.mode_problem);
  if (!status.checkpoint.problem.empty())
    lines.push_back("checkpoints fail: " + status.checkpoint.problem);
}

std::vector<std::string> Sorted(std::vector<MemberRow> rows) {
  std::ranges::stable_sort(rows, {}, &MemberRow::urgency);
  std::vector<std::string> texts;
  for (MemberRow& row : rows) texts.push_back(std::move(row.text));
  return texts;
}

std::vector<std::string> WorkerRows(const JobStatus& status) {
  Step front;
  for (const WorkerStatus& worker : status.workers)
    if (worker.is_member) front = std::max(front, worker.step);
  std::vector<MemberRow> rows;
  for (const WorkerStatus& worker : status.workers) {
    const bool is_late =
        status.stall && absl::c_linear_search(status.stall->missing, worker.worker);
    const bool is_over = worker.has_left || worker.was_released;
    const absl::string_view state = is_late && !is_over ? "late" : StateOf(worker);
    const int urgency = is_over ? 4 : !worker.is_alive ? 0 : is_late ? 1 : worker.is_member ? 3 : 2;
    const uint64_t behind =
        worker.is_member ? front.value() - std::min(front, worker.step).value() : 0;
    rows.push_back({urgency,
                    absl::StrFormat("%-12s %-8s %10d %7s",
                                    ToString(worker.worker),
                                    state,
                                    worker.step.value(),
                                    behind == 0 ? "" : absl::StrCat("-", behind))});
  }
  return Sorted(std::move(rows));
}

std::vector<std::string> ServerRows(const JobStatus& status) {
  std::vector<MemberRow> rows;
  uint32_t next = 0;
  const auto add_missing = [&](uint32_t end) {
    for (; next < end; ++next) {
      rows.push_back({0, absl::StrFormat("%-12s %-8s", ToString(ServerId{next}), "missing")});
    }
  };
  for (const ServerStatus& server : status.servers) {
    add_missing(std::min(server.server.value(), status.desired_servers));
    next = std::max(next, server.server.value() + 1);
    const bool is_leaving = server.server.value() >= status.desired_servers;
    rows.push_back({is_leaving ? 1 : 2,
                    absl::StrFormat("%-12s %-8s %7.1f MiB",
                                    ToString(server.server),
                                    is_leaving ? "leaving" : "serving",
                                    static_cast<double>(server.stats.bytes_owned) / (1 << 20))});
  }
  add_missing(status.desired_servers);
  return Sorted(std::move(rows));
}

// Adds workers and servers side by side, at most `rows` lines.
void AddMembers(const JobStatus& status, size_t rows, std::vector<std::string>& lines) {
  constexpr int kWorkerColumns = 42;
  const std::vector<std::string> workers = WorkerRows(status);
  const std::vector<std::string> servers = ServerRows(status);
  const size_t longest = std::max(workers.size(), servers.size());
  const size_t shown = longest <= rows ? longest : rows - 1;
  const auto at = [](const std::vector<std::string>& texts, size_t i) {
    return i < texts.size() ? texts[i] : std::string();
  };
  lines.push_back(
      absl::StrFormat("%-*s %s",
                      kWorkerColumns,
                      absl::StrFormat("%-12s %-8s %10s %7s", "worker", "state", "step", "behind"),
                      absl::StrFormat("%-12s %-8s %11s", "server", "state", "parameters")));
  for (size_t i = 0; i < shown; ++i)
    lines.push_back(absl::StrFormat("%-*s %s", kWorkerColumns, at(workers, i), at(servers, i)));
  if (shown == longest) return;
  const auto rest = [shown](const std::vector<std::string>& texts) {
    return texts.size() > shown ? absl::StrCat("and ", texts.size() - shown, " more") : "";
  };
  lines.push_back(absl::StrFormat("%-*s %s", kWorkerColumns, rest(workers), rest(servers)));
}

void AddEvents(const StatusHistory& history, std::vector<std::string>& lines) {
  const std::deque<HistoryEvent>& events = history.events();
  for (size_t i = events.size() - std::min(events.size(), kEventsShown); i < events.size(); ++i) {
    lines.push_back(absl::StrFormat("%s  %s%s",
                                    TimeOfDay(events[i].time),
                                    events[i].kind == HistoryEvent::Kind::kFailure ? "! " : "  ",
                                    events[i].text));
  }
}

std::string Header(const JobStatus& status) {
  return absl::StrFormat("%s: %s, %s, training for %.0f s",
                         status.job,
                         NameOf(status.phase),
                         Describe(status.consistency),
                         status.seconds);
}

void Trim(std::string& line, size_t columns) {
  line = Printable(line).substr(0, columns);
  line.erase(line.find_last_not_of(' ') + 1);
}

}  // namespace

std::vector<std::string> TerminalLines(const StatusHistory& history, TerminalSize size) {
  const JobStatus& status = *history.status();
  std::vector<std::string> lines = {Header(status), Figures(history), Members(history)};
  if (std::string phases = Phases(history); !phases.empty()) lines.push_back(std::move(phases));
  AddProblems(status, lines);
  std::vector<std::string> events;
  AddEvents(history, events);
  if (!events.empty()) events.insert(events.begin(), "");
  const size_t used = lines.size() + events.size() + 2;  // an empty line and the table's head
  lines.emplace_back();
  AddMembers(status, std::max(kMembersMin, size.rows - std::min(size.rows, used)), lines);
  lines.insert(lines.end(), events.begin(), events.end());
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) Trim(line, size.columns);
  return lines;
}

std::string StatusLine(const StatusHistory& history) {
  const JobStatus& status = *history.status();
  std::string line = absl::StrCat(status.job,
                                  ": ",
                                  std::string(NameOf(status.phase)),
                                  "   ",
                                  Figures(history),
                                  "   ",
                                  Members(history));
  if (std::string phases = Phases(history); !phases.empty()) absl::StrAppend(&line, "   ", phases);
  if (status.stall) absl::StrAppend(&line, "   late: ", ToString(*status.stall));
  return Printable(line);
}

}  // namespace pushpull
