// SPDX-License-Identifier: Apache-2.0
//
// A way to sum the gradients of all workers and return the result to each of them: what it sends
// over which link, and how long that takes.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/network.h"

namespace pushpull {

// Who sums: Pushpull's servers; the workers among themselves, in mode AllReduce; the worker's
// program over its own GPUs, for instance with NCCL; or nobody yet.
enum class Runner { kServers, kWorkers, kProgram, kPlanned };

// "servers", "workers", "program", "planned".
absl::string_view NameOf(Runner runner);

// A closed formula with this topology's numbers filled in.
struct Figure {
  std::string text;
  double seconds = 0;
};

// Sources of the formulas.
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

// What is sent, in phases: the first half sums, the second half returns the sum.
struct Schedule {
  std::string name;     // stable, for programs
  std::string title;    // for people
  std::string formula;  // if all links are alike: n, m, S, B as in docs/planning.md
  std::string source;   // of the formula
  Runner runner = Runner::kPlanned;
  std::vector<Phase> phases;
  std::vector<std::string> flows;  // a line for each: who sends what to whom
  std::vector<Figure> figures = {};
  // After the first half each GPU has the sum of its part; if false, the sum is in one place.
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
  // Time of each phase's busiest link, added up over the phases, as textbooks count.
  double seconds = 0;
  // Time of the busiest direction over all phases together: the best that a runtime can reach that
  // returns parts of the sum while other parts are still arriving, as Pushpull does.
  double streamed_seconds = 0;
  std::vector<LinkUse> links;  // by kind, the slowest first
};

Strategy Evaluate(Schedule schedule, const std::vector<Cable>& cables);

// The phase, then the same phase with every direction reversed, as the way back.
std::vector<Phase> BothWays(const Phase& there);

// The traffic over each cable that is used, with its bytes, time and a bar. The first
// `machine_cables` cables are those of each machine.
std::vector<std::string> DrawTraffic(const Schedule& schedule,
                                     const std::vector<Cable>& cables,
                                     size_t machine_cables);

}  // namespace pushpull
