// SPDX-License-Identifier: Apache-2.0
//
// A way to sum the gradients of all workers and give each of them the result: what it sends over
// which link, and how long that takes.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/network.h"

namespace pushpull {

// Who sums: Pushpull's servers; the worker's program over its own GPUs, for instance with NCCL;
// nobody yet.
enum class Runner { kServers, kProgram, kPlanned };

// "servers", "program", "planned".
absl::string_view NameOf(Runner runner);

// A closed formula with this topology's numbers in it.
struct Figure {
  std::string text;
  double seconds = 0;
};

// Where the formulas are from.
inline constexpr char kServersSource[] =
    "Zhang, Lipton, Li, Smola: Dive into Deep Learning, Computational Performance, Parameter "
    "Servers";
inline constexpr char kHierarchySource[] =
    "Jiang et al.: A unified architecture for accelerating distributed DNN training in "
    "heterogeneous GPU/CPU clusters, OSDI 2020";
inline constexpr char kRingSource[] =
    "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009";
inline constexpr char kTreeSource[] =
    "Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
    "2009";

// What is sent, in phases: the sum in the first half of them, its way back in the second.
struct Schedule {
  std::string name;     // stable, for programs
  std::string title;    // for people
  std::string formula;  // where all links are alike: n, m, S, B as docs/planning.md has them
  std::string source;   // of the formula
  Runner runner = Runner::kPlanned;
  std::vector<Phase> phases;
  std::vector<std::string> flows;  // who sends what to whom, a line each
  std::vector<Figure> figures = {};
  // After the first half each GPU has the sum of its part; else it is in the host's memory.
  bool is_in_parts = true;
};

// The busiest link of a kind.
struct LinkUse {
  LinkKind kind;
  std::string name;
  double bytes = 0;  // in its busier direction, over all phases
  double bandwidth = 0;
  double seconds = 0;
};

struct Strategy {
  Schedule schedule;
  // Each phase as long as its busiest link needs, one phase after the other: what textbooks count.
  double seconds = 0;
  // As long as the busiest direction of all phases together needs: what a runtime reaches at best
  // that returns a part of the sum while other parts are on their way there, as Pushpull does.
  double streamed_seconds = 0;
  std::vector<LinkUse> links;  // by kind, the one that needs longest first
};

Strategy Evaluate(Schedule schedule, const std::vector<Cable>& cables);

// The phase, then the same with every direction turned around: the way back is the way there.
std::vector<Phase> BothWays(const Phase& there);

// What flows over the cables that are used, each with its bytes, time and a bar. The first
// `machine_cables` of them are those of each machine.
std::vector<std::string> DrawTraffic(const Schedule& schedule,
                                     const std::vector<Cable>& cables,
                                     size_t machine_cables);

}  // namespace pushpull
