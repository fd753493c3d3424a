// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/strategy.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

constexpr size_t kDrawingLinesMax = 60;
constexpr double kBarMax = 20;
constexpr size_t kAlikeMax = 8;  // of more identical cables only one is drawn

// Bytes of all phases together, by direction.
std::vector<double> Sum(const Schedule& schedule, size_t directions) {
  std::vector<double> bytes(directions, 0.0);
  for (const Phase& phase : schedule.phases) {
    for (size_t i = 0; i < directions; ++i) bytes[i] += phase.bytes[i];
  }
  return bytes;
}

double BusiestSeconds(const std::vector<double>& bytes, const std::vector<Cable>& cables) {
  double seconds = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    seconds = std::max(seconds, bytes[i] / cables[i / 2].bandwidth);
  return seconds;
}

// How many cables, from this one on, are alike and carry the same.
size_t NumAlike(size_t first, const std::vector<Cable>& cables, const std::vector<double>& bytes) {
  const auto is_like_first = [&](size_t i) {
    return cables[i].kind == cables[first].kind && cables[i].depth == cables[first].depth &&
           cables[i].bandwidth == cables[first].bandwidth && bytes[Out(i)] == bytes[Out(first)] &&
           bytes[In(i)] == bytes[In(first)];
  };
  size_t end = first + 1;
  while (end < cables.size() && is_like_first(end)) ++end;
  return end - first;
}

std::string DrawCable(const Cable& cable, double out, double in, double busiest) {
  const double seconds = std::max(out, in) / cable.bandwidth;
  const auto length = static_cast<size_t>(busiest > 0 ? kBarMax * seconds / busiest + 0.5 : 0);
  return absl::StrFormat("%s%-*s %9s  out %7s  in %7s  %8s %s",
                         cable.depth == 0 ? "  " : "   `-- ",
                         cable.depth == 0 ? 28 : 23,
                         cable.name,
                         FormatBandwidth(cable.bandwidth),
                         FormatBytes(out),
                         FormatBytes(in),
                         FormatSeconds(seconds),
                         std::string(length, '#'));
}

// Whether a cable is drawn: it or a cable below it is used.
bool IsShown(size_t cable, const std::vector<Cable>& cables, const std::vector<double>& bytes) {
  for (size_t i = cable; i < cables.size(); ++i) {
    if (i > cable && cables[i].depth <= cables[cable].depth) return false;
    if (bytes[Out(i)] + bytes[In(i)] > 0) return true;
  }
  return false;
}

}  // namespace

absl::string_view NameOf(Runner runner) {
  constexpr std::array<absl::string_view, 4> kNames = {"servers", "workers", "program", "planned"};
  return kNames[static_cast<size_t>(runner)];
}

std::vector<Phase> BothWays(const Phase& there) {
  Phase back = there;
  for (size_t i = 0; i + 1 < back.bytes.size(); i += 2) std::swap(back.bytes[i], back.bytes[i + 1]);
  return {there, back};
}

Strategy Evaluate(Schedule schedule, const std::vector<Cable>& cables) {
  Strategy strategy;
  const std::vector<double> bytes = Sum(schedule, 2 * cables.size());
  strategy.streamed_seconds = BusiestSeconds(bytes, cables);
  for (const Phase& phase : schedule.phases) {
    strategy.seconds += BusiestSeconds(phase.bytes, cables) + phase.latency;
    strategy.streamed_seconds += phase.latency;
  }
  std::vector<LinkUse>& uses = strategy.links;
  for (size_t i = 0; i < cables.size(); ++i) {
    const Cable& cable = cables[i];
    const double busier = std::max(bytes[Out(i)], bytes[In(i)]);
    if (busier <= 0) continue;
    const LinkUse use{cable.kind, cable.name, busier, cable.bandwidth, busier / cable.bandwidth};
    const auto same =
        std::ranges::find_if(uses, [&](const LinkUse& other) { return other.kind == cable.kind; });
    if (same == uses.end()) {
      uses.push_back(use);
    } else if (use.seconds > same->seconds) {
      *same = use;
    }
  }
  std::ranges::stable_sort(uses, std::ranges::greater(), &LinkUse::seconds);
  strategy.schedule = std::move(schedule);
  return strategy;
}

std::vector<std::string> DrawTraffic(const Schedule& schedule,
                                     const std::vector<Cable>& cables,
                                     size_t machine_cables) {
  const std::vector<double> bytes = Sum(schedule, 2 * cables.size());
  const double busiest = BusiestSeconds(bytes, cables);
  const bool is_cluster = machine_cables < cables.size();
  std::vector<std::string> lines = schedule.flows;
  for (size_t i = 0; i < cables.size(); ++i) {
    if (is_cluster && machine_cables > 0 && i == 0) lines.emplace_back("in each worker's machine:");
    if (is_cluster && i == machine_cables) lines.emplace_back("between machines:");
    if (!IsShown(i, cables, bytes)) continue;
    if (lines.size() >= kDrawingLinesMax) {
      lines.push_back(absl::StrCat("... and ", cables.size() - i, " more links"));
      break;
    }
    lines.push_back(DrawCable(cables[i], bytes[Out(i)], bytes[In(i)], busiest));
    const size_t alike = NumAlike(i, cables, bytes);
    if (alike <= kAlikeMax) continue;
    lines.push_back(absl::StrCat("      ... and ", alike - 1, " more like it"));
    i += alike - 1;
  }
  return lines;
}

}  // namespace pushpull
