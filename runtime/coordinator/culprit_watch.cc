// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/culprit_watch.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Minimum time between two kept reports, so that a window contains few of them.
constexpr Duration kSpacing = std::chrono::seconds(2);
// A named member stays named until its cost and its ratio are clearly below the limits.
constexpr double kReleaseShare = 2.0 / 3;
constexpr double kReleaseRatio = 0.7;  // of a ratio's excess over 1
// How much a server's own time must cost besides its links, as a fraction of the limit: more than
// noise.
constexpr double kServerPart = 0.05;
// How much busier its lanes must be, as a fraction of the limit: a step has phases in which no
// server has anything to do.
constexpr double kBusierPart = 1.0 / 3;
// A named worker explains slow links of its own that cost up to this many times as much.
constexpr double kExplained = 2;
// A server reports every second; a report that takes longer than this is late.
constexpr Duration kReportLate = std::chrono::milliseconds(1500);

// Of an even number, the lower middle one; 0 if empty.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One link, with its worker.
struct Pair {
  WorkerId worker;
  LinkPace pace;
  double byte_seconds() const { return pace.bytes > 0 ? pace.link_seconds / pace.bytes : 0; }
};

std::vector<Pair> PairsOf(std::span<const WorkerPace> paces) {
  std::vector<Pair> pairs;
  for (const WorkerPace& pace : paces) {
    for (const LinkPace& link : pace.links)
      if (link.bytes > 0) pairs.push_back({pace.worker, link});
  }
  return pairs;
}

double StepOf(std::span<const WorkerPace> paces) {
  std::vector<double> steps;
  for (const WorkerPace& pace : paces) steps.push_back(pace.step_seconds);
  return Median(std::move(steps));
}

// The median over the other workers.
double OthersOf(std::span<const WorkerPace> paces, WorkerId worker, double WorkerPace::*seconds) {
  std::vector<double> others;
  for (const WorkerPace& pace : paces)
    if (pace.worker != worker) others.push_back(pace.*seconds);
  return Median(std::move(others));
}

double OthersOf(const std::map<ServerId, double>& servers, ServerId server) {
  std::vector<double> others;
  for (const auto& [id, seconds] : servers)
    if (id != server) others.push_back(seconds);
  return Median(std::move(others));
}

// Compares the links for which `is_in` holds with all others: how much of a step they cost if each
// of them is slow; none if one is not.
class LinkGroups {
 public:
  LinkGroups(std::span<const Pair> pairs, double step, const CulpritLimits& limits)
      : pairs_(pairs), step_(step), limits_(limits) {}

  std::optional<double> CostOf(absl::FunctionRef<bool(const Pair&)> is_in) const {
    std::vector<double> seconds;
    std::vector<double> byte_seconds;
    for (const Pair& pair : pairs_) {
      if (is_in(pair)) continue;
      seconds.push_back(pair.pace.link_seconds);
      byte_seconds.push_back(pair.byte_seconds());
    }
    if (seconds.empty()) return std::nullopt;
    const double usual = Median(std::move(seconds));
    const double usual_byte = Median(std::move(byte_seconds));
    std::optional<double> cost;
    for (const Pair& pair : pairs_) {
      if (!is_in(pair)) continue;
      const double more = pair.pace.link_seconds - usual;
      const bool is_slow =
          more >= limits_.share * step_ && pair.byte_seconds() >= limits_.link_ratio * usual_byte;
      if (!is_slow) return std::nullopt;
      cost = std::min(cost.value_or(more), more);
    }
    return cost;
  }

 private:
  const std::span<const Pair> pairs_;
  const double step_;
  const CulpritLimits& limits_;
};

std::vector<Culprit> FindWorkers(std::span<const WorkerPace> paces,
                                 double step,
                                 const CulpritLimits& limits) {
  std::vector<Culprit> found;
  if (paces.size() < 2) return found;
  for (const WorkerPace& pace : paces) {
    const double usual = OthersOf(paces, pace.worker, &WorkerPace::own_seconds);
    const double cost = pace.own_seconds - usual;
    const double waited = OthersOf(paces, pace.worker, &WorkerPace::wait_seconds);
    const bool is_slow = pace.own_seconds >= limits.worker_ratio * usual &&
                         cost >= limits.share * step && waited >= cost / 2;
    if (is_slow) found.push_back({CulpritKind::kWorker, pace.worker, std::nullopt, cost, 0});
  }
  return found;
}

// A lane that waits for a slow link is not busy; one that waits for a CPU is.
bool IsBusier(const BusyShares& busy, ServerId server, const CulpritLimits& limits) {
  const auto it = busy.find(server);
  if (it == busy.end() || busy.size() < 2) return false;
  const double usual = OthersOf(busy, server);
  return it->second >= limits.server_ratio * usual &&
         it->second - usual >= kBusierPart * limits.share;
}

std::vector<Culprit> FindServers(std::span<const WorkerPace> paces,
                                 const BusyShares& busy,
                                 const LinkGroups& links,
                                 const CulpritLimits& limits) {
  std::vector<Culprit> found;
  const double step = StepOf(paces);
  const std::map<ServerId, double> servers = FindServerSeconds(paces);
  if (servers.size() < 2) return found;
  for (const auto& [server, seconds] : servers) {
    const double usual = OthersOf(servers, server);
    const double inside = seconds - usual;
    const double outside =
        links.CostOf([id = server](const Pair& pair) { return pair.pace.server == id; })
            .value_or(0);
    const bool holds_longer =
        seconds >= limits.server_ratio * usual && inside >= kServerPart * limits.share * step;
    const bool is_starved = outside > 0 && IsBusier(busy, server, limits);
    if (!holds_longer && !is_starved) continue;
    const double cost = std::max(inside, 0.0) + outside;
    if (cost >= limits.share * step)
      found.push_back({CulpritKind::kServer, std::nullopt, server, cost, 0});
  }
  return found;
}

bool IsOf(const Culprit& culprit, const Pair& pair) {
  return culprit.worker.value_or(pair.worker) == pair.worker &&
         culprit.server.value_or(pair.pace.server) == pair.pace.server;
}

// All links of a worker, all of a server, then single ones.
std::vector<Culprit> FindLinks(std::span<const Pair> pairs, const LinkGroups& links) {
  std::set<WorkerId> workers;
  std::set<ServerId> servers;
  for (const Pair& pair : pairs) {
    workers.insert(pair.worker);
    servers.insert(pair.pace.server);
  }
  std::vector<Culprit> found;
  const auto add = [&](std::optional<WorkerId> worker, std::optional<ServerId> server) {
    Culprit culprit{CulpritKind::kLink, worker, server, 0, 0};
    const auto cost = links.CostOf([&](const Pair& pair) { return IsOf(culprit, pair); });
    if (!cost) return;
    culprit.seconds = *cost;
    found.push_back(culprit);
  };
  for (const WorkerId worker : workers) add(worker, std::nullopt);
  if (workers.size() > 1 && servers.size() == 1) return found;
  for (const ServerId server : servers) add(std::nullopt, server);
  if (workers.size() == 1) return found;
  const std::vector<Culprit> groups = found;
  for (const Pair& pair : pairs) {
    const bool is_covered =
        absl::c_any_of(groups, [&](const Culprit& group) { return IsOf(group, pair); });
    if (!is_covered) add(pair.worker, pair.pace.server);
  }
  return found;
}

bool IsExplained(const Culprit& link, std::span<const Culprit> members) {
  return absl::c_any_of(members, [&](const Culprit& member) {
    if (member.server) return link.server == member.server;
    return link.worker == member.worker && link.seconds <= kExplained * member.seconds;
  });
}

CulpritLimits ReleaseOf(const CulpritLimits& limits) {
  const auto release = [](double ratio) { return 1 + kReleaseRatio * (ratio - 1); };
  return {.share = kReleaseShare * limits.share,
          .worker_ratio = release(limits.worker_ratio),
          .server_ratio = release(limits.server_ratio),
          .link_ratio = release(limits.link_ratio)};
}

}  // namespace

std::map<WorkerId, double> FindLateness(std::span<const WorkerPace> paces) {
  std::map<WorkerId, double> lateness;
  for (const WorkerPace& pace : paces) {
    const double usual = paces.size() < 2 ? pace.own_seconds
                                          : OthersOf(paces, pace.worker, &WorkerPace::own_seconds);
    lateness[pace.worker] = std::max(0.0, pace.own_seconds - usual);
  }
  return lateness;
}

std::map<ServerId, double> FindServerSeconds(std::span<const WorkerPace> paces) {
  std::map<ServerId, std::vector<double>> all;
  for (const Pair& pair : PairsOf(paces)) all[pair.pace.server].push_back(pair.pace.server_seconds);
  std::map<ServerId, double> medians;
  for (auto& [server, seconds] : all) medians[server] = Median(std::move(seconds));
  return medians;
}

std::vector<Culprit> FindCulprits(std::span<const WorkerPace> paces,
                                  const BusyShares& busy,
                                  const CulpritLimits& limits) {
  const double step = StepOf(paces);
  if (step <= 0) return {};
  const std::vector<Pair> pairs = PairsOf(paces);
  const LinkGroups links(pairs, step, limits);
  std::vector<Culprit> found = FindWorkers(paces, step, limits);
  absl::c_copy(FindServers(paces, busy, links, limits), std::back_inserter(found));
  const std::vector<Culprit> members = found;
  for (const Culprit& link : FindLinks(pairs, links))
    if (!IsExplained(link, members)) found.push_back(link);
  for (Culprit& culprit : found) culprit.share = std::min(1.0, culprit.seconds / step);
  absl::c_stable_sort(found,
                      [](const Culprit& a, const Culprit& b) { return a.seconds > b.seconds; });
  return found;
}

CulpritWatch::Key CulpritWatch::KeyOf(const Culprit& culprit) {
  return {culprit.kind, {culprit.worker, culprit.server}};
}

void CulpritWatch::OnWorker(SteadyTime now, WorkerId worker, const StepCosts& costs) {
  std::deque<Report>& reports = reports_[worker];
  // A new process of the worker counts from its own start.
  if (!reports.empty() && costs.steps < reports.back().costs.steps) reports.clear();
  if (!reports.empty() && costs.steps == reports.back().costs.steps) return;
  // The newest report always counts; earlier ones are kept only kSpacing apart.
  const size_t count = reports.size();
  if (count >= 2 && reports[count - 1].at - reports[count - 2].at < kSpacing) reports.pop_back();
  reports.push_back({now, costs});
  const auto is_enough = [&](const Report& from) {
    return now - from.at >= kWindow && costs.steps - from.costs.steps >= kStepsMin;
  };
  while (reports.size() > 2 && is_enough(reports[1])) reports.pop_front();
}

void CulpritWatch::OnServer(SteadyTime now, ServerId server, double busy_seconds) {
  std::deque<BusyReport>& reports = busy_reports_[server];
  if (!reports.empty() && busy_seconds < reports.back().busy_seconds) reports.clear();
  const size_t count = reports.size();
  if (count >= 2 && reports[count - 1].at - reports[count - 2].at < kSpacing) reports.pop_back();
  reports.push_back({now, busy_seconds});
  while (reports.size() > 2 && now - reports[1].at >= kWindow) reports.pop_front();
}

BusyShares CulpritWatch::Busy(SteadyTime now) const {
  BusyShares busy;
  for (const auto& [server, reports] : busy_reports_) {
    const Duration late = std::max<Duration>(now - reports.back().at - kReportLate, Duration{0});
    const Duration time = reports.back().at - reports.front().at + late;
    if (time < kWindow / 2) continue;
    const double seconds = reports.back().busy_seconds - reports.front().busy_seconds;
    busy[server] = (seconds + ToSeconds(late)) / ToSeconds(time);
  }
  return busy;
}

std::vector<WorkerPace> CulpritWatch::Paces() const {
  std::vector<WorkerPace> paces;
  for (const auto& [worker, reports] : reports_) {
    if (reports.empty()) continue;
    const StepCosts& first = reports.front().costs;
    const StepCosts& last = reports.back().costs;
    const uint64_t count = last.steps - first.steps;
    if (count < kStepsMin || reports.back().at - reports.front().at < kWindow / 2) continue;
    const auto steps = static_cast<double>(count);
    WorkerPace pace{.worker = worker,
                    .step_seconds = (last.step_seconds - first.step_seconds) / steps,
                    .own_seconds = (last.own_seconds - first.own_seconds) / steps,
                    .wait_seconds = (last.wait_seconds - first.wait_seconds) / steps,
                    .links = {}};
    for (const LinkCosts& link : last.links) {
      const auto before = absl::c_find_if(
          first.links, [&](const LinkCosts& other) { return other.server == link.server; });
      const LinkCosts from = before == first.links.end() ? LinkCosts{} : *before;
      pace.links.push_back(
          {.server = link.server,
           .bytes = static_cast<double>(link.bytes - std::min(link.bytes, from.bytes)) / steps,
           .link_seconds = (link.link_seconds - from.link_seconds) / steps,
           .server_seconds = (link.server_seconds - from.server_seconds) / steps});
    }
    paces.push_back(std::move(pace));
  }
  return paces;
}

void CulpritWatch::Update(SteadyTime now) {
  if (now - decided_at_ < kPeriod) return;
  decided_at_ = now;
  const std::vector<WorkerPace> paces = Paces();
  const BusyShares busy = Busy(now);
  lateness_ = FindLateness(paces);
  server_seconds_ = FindServerSeconds(paces);
  std::set<Key> found;
  for (const Culprit& culprit : FindCulprits(paces, busy, CulpritLimits{})) {
    Confirm(culprit);
    found.insert(KeyOf(culprit));
  }
  for (const Culprit& culprit : FindCulprits(paces, busy, ReleaseOf(CulpritLimits{}))) {
    const auto suspect = suspects_.find(KeyOf(culprit));
    if (suspect == suspects_.end() || !suspect->second.is_named) continue;
    suspect->second.culprit = culprit;
    found.insert(KeyOf(culprit));
  }
  for (auto it = suspects_.begin(); it != suspects_.end();) {
    if (found.contains(it->first) || --it->second.confirmations > 0) {
      ++it;
    } else {
      Drop(it);
    }
  }
  DropExplained();
}

void CulpritWatch::Confirm(const Culprit& culprit) {
  Suspect& suspect = suspects_[KeyOf(culprit)];
  const int enough = culprit.kind == CulpritKind::kLink ? kLinkConfirmations : kConfirmations;
  suspect.culprit = culprit;
  suspect.confirmations = std::min(suspect.confirmations + 1, enough);
  if (suspect.is_named || suspect.confirmations < enough) return;
  suspect.is_named = true;
  news_.push_back({true, ToString(culprit)});
}

// Advances `suspect` to the next one.
void CulpritWatch::Drop(std::map<Key, Suspect>::iterator& suspect) {
  if (suspect->second.is_named) {
    news_.push_back(
        {false, absl::StrCat(WhoOf(suspect->second.culprit), " holds nobody up any more")});
  }
  suspect = suspects_.erase(suspect);
}

void CulpritWatch::DropExplained() {
  std::vector<Culprit> members;
  for (const auto& [key, suspect] : suspects_) {
    if (suspect.is_named && suspect.culprit.kind != CulpritKind::kLink)
      members.push_back(suspect.culprit);
  }
  for (auto it = suspects_.begin(); it != suspects_.end();) {
    const Culprit& culprit = it->second.culprit;
    if (culprit.kind == CulpritKind::kLink && IsExplained(culprit, members)) {
      Drop(it);
    } else {
      ++it;
    }
  }
}

void CulpritWatch::AddTo(JobStatus& status) const {
  for (const auto& [key, suspect] : suspects_)
    if (suspect.is_named) status.culprits.push_back(suspect.culprit);
  absl::c_stable_sort(status.culprits,
                      [](const Culprit& a, const Culprit& b) { return a.seconds > b.seconds; });
  if (status.culprits.size() > JobStatus::kCulpritsMax)
    status.culprits.resize(JobStatus::kCulpritsMax);
  for (WorkerStatus& worker : status.workers) {
    const auto late = lateness_.find(worker.worker);
    if (late != lateness_.end()) worker.lateness_seconds = late->second;
  }
  for (ServerStatus& server : status.servers) {
    const auto seconds = server_seconds_.find(server.server);
    if (seconds != server_seconds_.end()) server.step_seconds = seconds->second;
  }
}

}  // namespace pushpull
