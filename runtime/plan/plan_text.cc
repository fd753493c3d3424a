// SPDX-License-Identifier: Apache-2.0
//
// A plan for people; see plan.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/plan/plan.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

std::string Counted(int number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

std::string Head(const Plan& plan) {
  const Topology& topology = plan.topology;
  std::string line = topology.name.empty() ? "" : absl::StrCat(topology.name, ": ");
  const int machines = NumWorkerMachines(topology);
  if (topology.machine.gpus > 0) {
    absl::StrAppend(
        &line, Counted(NumWorkers(topology), "GPU"), " on ", Counted(machines, "machine"));
  } else {
    absl::StrAppend(&line, Counted(machines, "worker"));
  }
  const int servers = NumServerMachines(topology);
  if (servers > 0) absl::StrAppend(&line, ", ", Counted(servers, "server"));
  return absl::StrCat(line, ", gradients of ", FormatBytes(plan.bytes), "\n");
}

void AppendTable(const Plan& plan, std::string& out) {
  absl::StrAppendFormat(
      &out, "\n  %-16s %9s %9s  %-9s %s\n", "strategy", "streamed", "in turn", "sums", "limit");
  for (const Strategy& strategy : plan.strategies) {
    const LinkUse& limit = strategy.links.front();
    absl::StrAppendFormat(&out,
                          "  %-16s %9s %9s  %-9s %s, %s at %s\n",
                          strategy.schedule.name,
                          FormatSeconds(strategy.streamed_seconds),
                          FormatSeconds(strategy.seconds),
                          NameOf(strategy.schedule.runner),
                          TitleOf(limit.kind),
                          FormatBytes(limit.bytes),
                          FormatBandwidth(limit.bandwidth));
  }
  absl::StrAppend(&out,
                  "\n  streamed: sums flow back while gradients are still on their way, as in "
                  "Pushpull; in turn: first there,\n  then back, as textbooks count. Sums: "
                  "Pushpull's servers, the workers (mode AllReduce), the worker's\n  program "
                  "(NCCL), or planned: nobody yet.\n");
}

void AppendFormulas(const Plan& plan, std::string& out) {
  absl::StrAppend(&out, "\nformulas for links that are all alike (docs/planning.md):\n");
  for (const Strategy& strategy : plan.strategies) {
    const Schedule& schedule = strategy.schedule;
    absl::StrAppendFormat(
        &out, "  %-16s %-24s %s\n", schedule.name, schedule.formula, schedule.title);
    for (const Figure& figure : schedule.figures) {
      absl::StrAppendFormat(
          &out, "  %-16s %s = %s\n", "", figure.text, FormatSeconds(figure.seconds));
    }
  }
}

void AppendPoint(const BreakEven& found,
                 const BreakEvenPoint& point,
                 absl::string_view formula,
                 std::string& out) {
  absl::StrAppend(&out, "  ", formula, ": ");
  if (point.from_workers) {
    absl::StrAppendFormat(&out,
                          "pays from %d workers on, %s a step\n",
                          *point.from_workers,
                          FormatSeconds(point.from_step_seconds));
  } else {
    absl::StrAppendFormat(&out, "no number of workers up to %d pays\n", found.workers);
  }
  absl::StrAppendFormat(&out,
                        "    all %d workers: %s a step, %.2f times the speed of one; they pay from "
                        "a batch of %.0f on\n",
                        found.workers,
                        FormatSeconds(point.step_seconds),
                        found.compute_seconds / point.step_seconds,
                        point.from_batch);
}

void AppendBreakEven(const BreakEven& found, std::string& out) {
  absl::StrAppendFormat(&out,
                        "\nwhere distribution pays: one worker computes a batch of %d in T = %s, k "
                        "workers in T / k each;\nT_sync of all %d: %s (%s, streamed)\n",
                        found.batch,
                        FormatSeconds(found.compute_seconds),
                        found.workers,
                        FormatSeconds(found.sync_seconds),
                        found.strategy);
  AppendPoint(found, found.in_turn, "T / k + T_sync(k) < T", out);
  AppendPoint(found, found.overlapped, "overlapped, max(T / k, T_sync(k)) < T", out);
}

}  // namespace

std::string ToText(const Plan& plan) {
  std::string out = Head(plan);
  AppendTable(plan, out);
  absl::StrAppend(&out, "\n", plan.strategies.front().schedule.name, ", there and back:\n");
  for (const std::string& line : plan.drawing) absl::StrAppend(&out, "  ", line, "\n");
  AppendFormulas(plan, out);
  if (plan.break_even) AppendBreakEven(*plan.break_even, out);
  const Recommendation& recommended = plan.recommendation;
  absl::StrAppend(&out, "\nfor a manifest (", recommended.strategy, "):\n");
  for (const std::string& line : ToManifest(recommended.fields))
    absl::StrAppend(&out, "  ", line, "\n");
  for (const std::string& note : recommended.notes) absl::StrAppend(&out, "note: ", note, "\n");
  return out;
}

}  // namespace pushpull
