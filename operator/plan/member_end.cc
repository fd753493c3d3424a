// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/member_end.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/base/error_line.h"
#include "runtime/base/printable.h"
#include "runtime/base/termination_message.h"
#include "runtime/job/enum_names.h"

namespace pushpull_operator {

using pushpull::ExitReason;

namespace {

// For messages of Kubernetes; those of a condition may be longer.
constexpr size_t kMessageMax = 1024;

struct ReasonMeaning {
  absl::string_view name;
  ExitReason reason;
};

// Reasons of the condition DisruptionTarget. The taint that a pod does not tolerate is that of a
// node without a sign of life, unless somebody has set a different one.
constexpr ReasonMeaning kDisruptions[] = {{"PreemptionByScheduler", ExitReason::kPreempted},
                                          {"DeletionByTaintManager", ExitReason::kNodeLost},
                                          {"DeletionByPodGC", ExitReason::kNodeLost},
                                          {"EvictionByEvictionAPI", ExitReason::kEvicted},
                                          {"TerminationByKubelet", ExitReason::kEvicted}};

// Values of a pod's status.reason.
constexpr ReasonMeaning kPodReasons[] = {{"Evicted", ExitReason::kEvicted},
                                         {"NodeShutdown", ExitReason::kEvicted},
                                         {"Terminated", ExitReason::kEvicted},
                                         {"Shutdown", ExitReason::kEvicted},
                                         {"Preempting", ExitReason::kPreempted},
                                         {"NodeLost", ExitReason::kNodeLost}};

// Reasons for a container that the container runtime or the kubelet no longer found: the node has
// restarted meanwhile. The exit code, 255 or 137, comes from them.
//
// Source: containerd's unknownExitReason, the kubelet's ContainerReasonStatusUnknown.
constexpr absl::string_view kLostContainers[] = {"Unknown", "ContainerStatusUnknown"};

// Reasons for a container whose program can never be started: that of containerd and CRI-O for one
// that is missing or not executable, and that of older container runtimes.
constexpr absl::string_view kNeverStarted[] = {"StartError", "ContainerCannotRun"};

// Times of the API server and of a coordinator's report are in whole seconds.
constexpr std::chrono::seconds kRounding{1};

// Containers waiting for these reasons are about to start.
constexpr absl::string_view kOnTheWay[] = {"ContainerCreating", "PodInitializing"};

bool IsLost(const ContainerEnd& end) {
  return std::count(std::begin(kLostContainers), std::end(kLostContainers), end.reason) > 0;
}

bool HasNeverStarted(const ContainerEnd& end) {
  return std::count(std::begin(kNeverStarted), std::end(kNeverStarted), end.reason) > 0;
}

// `main`: the member's container; null: unknown.
std::optional<ExitReason> DisruptionOf(const Pod& pod, const ContainerStatus* main) {
  for (const auto& [name, reason] : kDisruptions) {
    if (pod.disruption == name) return reason;
  }
  for (const auto& [name, reason] : kPodReasons) {
    if (pod.reason == name) return reason;
  }
  // A reason from a newer Kubernetes: some other component removed the pod.
  if (!pod.disruption.empty()) return ExitReason::kEvicted;
  if (main != nullptr && main->end && IsLost(*main->end)) return ExitReason::kNodeLost;
  return std::nullopt;
}

const ContainerStatus* FindContainer(const Pod& pod, absl::string_view name) {
  for (const ContainerStatus& container : pod.containers) {
    if (!container.is_init && container.name == name) return &container;
  }
  return nullptr;
}

const ContainerStatus* MainContainer(const Pod& pod, const MemberId& member) {
  return FindContainer(pod, ComponentOf(member.role));
}

std::chrono::seconds RanFor(const ContainerEnd& end) {
  if (!end.started || !end.finished) return std::chrono::seconds(0);
  return std::max(*end.finished - *end.started, std::chrono::seconds(0));
}

// The line of a container's termination message or log that says why it ended.
std::string LastLine(absl::string_view text) {
  if (std::string error = pushpull::ErrorLineOf(text); !error.empty()) return error;
  text = absl::StripTrailingAsciiWhitespace(text);
  const size_t end_of_line = text.rfind('\n');
  if (end_of_line != absl::string_view::npos) text.remove_prefix(end_of_line + 1);
  return pushpull::Printable(text, pushpull::ErrorLine::kBytesMax);
}

MemberEnd ContainerEndOf(const ContainerEnd& end, const MemberId& member) {
  MemberEnd ended{.exit = {.role = member.role,
                           .index = member.index,
                           .exit_code = end.exit_code,
                           .ran_for = RanFor(end),
                           .line = pushpull::ErrorLineOf(end.message)},
                  .reason = end.exit_code == 0 ? "Completed" : "Error",
                  .code = end.exit_code,
                  .detail = end.exit_code == 0 ? "" : LastLine(end.message)};
  const std::optional<pushpull::ToldEnd> told = pushpull::ToldEndOf(end.message);
  const bool says_released = told && told->was_released();
  ended.was_released = says_released && end.exit_code == 0;
  if (end.exit_code == 0) return ended;
  if (HasNeverStarted(end)) {
    ended.exit.has_started = false;
    ended.reason = end.reason;
  } else if (told && !says_released) {
    ended.exit.is_final = told->is_final();
    ended.exit.restarts_job = told->restarts_job();
    ended.detail = LastLine(told->reason);
    ended.exit.line = ended.detail;
  }
  if (end.reason != "OOMKilled") return ended;
  ended.exit.reason = ExitReason::kOomKilled;
  ended.reason = end.reason;
  return ended;
}

// The end of a pod that failed before the member's own container ended: an init container failed,
// or the node rejected the pod.
MemberEnd PodFailure(const Pod& pod, const MemberId& member) {
  for (const ContainerStatus& container : pod.containers) {
    if (!container.end || container.end->exit_code == 0) continue;
    MemberEnd ended = ContainerEndOf(*container.end, member);
    ended.detail = absl::StrCat("container ", container.name, " failed ", ended.detail);
    return ended;
  }
  return {.exit = {.role = member.role, .exit_code = 1, .reason = ExitReason::kError},
          .reason = "Error",
          .code = std::nullopt,
          .detail = pushpull::Printable(
              absl::StrCat(pod.reason, pod.message.empty() ? "" : ": ", pod.message), kMessageMax)};
}

MemberEnd Disruption(ExitReason reason, const ObservedPod& pod, const MemberId& member) {
  MemberEnd ended{.exit = {.role = member.role, .reason = reason},
                  .reason = std::string(pushpull::NameOf(reason)),
                  .code = std::nullopt,
                  .detail = pushpull::Printable(pod.pod.message, kMessageMax)};
  const ContainerStatus* main = MainContainer(pod.pod, member);
  if (main == nullptr || !main->end) return ended;
  ended.exit.exit_code = main->end->exit_code;
  ended.exit.ran_for = RanFor(*main->end);
  ended.code = main->end->exit_code;
  return ended;
}

}  // namespace

bool MemberEnd::is_disruption() const {
  return exit.reason == ExitReason::kEvicted || exit.reason == ExitReason::kPreempted ||
         exit.reason == ExitReason::kNodeLost;
}

std::optional<MemberEnd> EndOf(const ObservedPod& pod, const MemberId& member) {
  const ContainerStatus* main = MainContainer(pod.pod, member);
  const bool has_ended = main != nullptr && main->end.has_value();
  const bool has_failed =
      pod.pod.phase == PodPhase::kFailed || (has_ended && main->end->exit_code != 0);
  const std::optional<ExitReason> disruption = DisruptionOf(pod.pod, main);
  if (disruption && (pod.meta.is_deleting || has_failed))
    return Disruption(*disruption, pod, member);
  if (pod.meta.is_deleting) return std::nullopt;
  if (has_ended) return ContainerEndOf(*main->end, member);
  if (pod.pod.phase == PodPhase::kSucceeded) return ContainerEndOf({}, member);
  if (pod.pod.phase == PodPhase::kFailed) return PodFailure(pod.pod, member);
  return std::nullopt;
}

const ContainerStatus* ColocatedServerOf(const ObservedPod& pod) {
  return FindContainer(pod.pod, ComponentOf(pushpull::JobRole::kServer));
}

std::optional<MemberEnd> EndOfColocatedServer(const ObservedPod& pod, const MemberId& worker) {
  const ContainerStatus* server = ColocatedServerOf(pod);
  const bool has_failed = server != nullptr && server->end && server->end->exit_code != 0;
  if (!has_failed || pod.meta.is_deleting) return std::nullopt;
  MemberEnd ended = ContainerEndOf(*server->end, worker);
  ended.detail = absl::StrCat("the server beside it failed ", ended.detail);
  return ended;
}

bool WasReady(const ObservedPod& pod,
              const MemberId& member,
              const WorkerReport* worker,
              WallTime now) {
  if (member.role == pushpull::JobRole::kWorker) {
    const std::optional<WallTime>& created = pod.pod.creation_time;
    return worker != nullptr && (!created || now - worker->joined_ago + kRounding >= *created);
  }
  // The condition is false from before the container starts until it is ready, and again at its
  // end.
  const ContainerStatus* main = MainContainer(pod.pod, member);
  if (main == nullptr || !main->end) return pod.pod.is_ready;
  return !pod.pod.unready_since || !main->end->started ||
         *pod.pod.unready_since > *main->end->started;
}

std::optional<WallTime> RunningSince(const ObservedPod& pod, const MemberId& member) {
  const ContainerStatus* main = MainContainer(pod.pod, member);
  return main == nullptr ? std::nullopt : main->running_since;
}

std::optional<StartProblem> StartProblemOf(const ObservedPod& pod) {
  if (pod.meta.is_deleting) return std::nullopt;
  if (!pod.pod.unschedulable.empty()) {
    return StartProblem{"Unschedulable",
                        absl::StrCat("pod ", pod.meta.key.name, ": ", pod.pod.unschedulable)};
  }
  for (const ContainerStatus& container : pod.pod.containers) {
    const std::string& reason = container.waiting_reason;
    if (reason.empty() || std::count(std::begin(kOnTheWay), std::end(kOnTheWay), reason) > 0) {
      continue;
    }
    return StartProblem{reason == "ErrImagePull" ? "ImagePullBackOff" : reason,
                        absl::StrCat("pod ",
                                     pod.meta.key.name,
                                     ", container ",
                                     container.name,
                                     ", image ",
                                     container.image,
                                     container.waiting_message.empty() ? "" : ": ",
                                     container.waiting_message)};
  }
  return std::nullopt;
}

std::optional<StartProblem> SidecarProblemOf(const ObservedPod& pod) {
  if (pod.meta.is_deleting) return std::nullopt;
  for (const ContainerStatus& container : pod.pod.containers) {
    const bool has_failed = container.end && container.end->exit_code != 0;
    if (!has_failed || container.is_init || IsOfMember(container)) continue;
    const std::string line = LastLine(container.end->message);
    return StartProblem{"SidecarEnded",
                        absl::StrCat("container ",
                                     container.name,
                                     " of pod ",
                                     pod.meta.key.name,
                                     " ended with exit code ",
                                     container.end->exit_code,
                                     "; the member goes on without it",
                                     line.empty() ? "" : ": ",
                                     line)};
  }
  return std::nullopt;
}

}  // namespace pushpull_operator
