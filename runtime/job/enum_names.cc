// SPDX-License-Identifier: Apache-2.0
//
// The tables of enum_names.h.
#include "runtime/job/enum_names.h"

namespace pushpull {

template <>
std::span<const EnumName<JobRole>> EnumNames() {
  static constexpr EnumName<JobRole> kNames[] = {{JobRole::kServer, "Server"},
                                                 {JobRole::kWorker, "Worker"},
                                                 {JobRole::kCoordinator, "Coordinator"}};
  return kNames;
}

template <>
std::span<const EnumName<SyncMode>> EnumNames() {
  static constexpr EnumName<SyncMode> kNames[] = {
      {SyncMode::kSync, "Sync"}, {SyncMode::kAsync, "Async"}, {SyncMode::kBounded, "Bounded"}};
  return kNames;
}

template <>
std::span<const EnumName<NonFinitePolicy>> EnumNames() {
  static constexpr EnumName<NonFinitePolicy> kNames[] = {{NonFinitePolicy::kFail, "Fail"},
                                                         {NonFinitePolicy::kSkip, "Skip"},
                                                         {NonFinitePolicy::kDrop, "Drop"}};
  return kNames;
}

template <>
std::span<const EnumName<StallPolicy>> EnumNames() {
  static constexpr EnumName<StallPolicy> kNames[] = {{StallPolicy::kWarn, "Warn"},
                                                     {StallPolicy::kDropWorker, "DropWorker"},
                                                     {StallPolicy::kFail, "Fail"}};
  return kNames;
}

template <>
std::span<const EnumName<DrainTimeoutPolicy>> EnumNames() {
  static constexpr EnumName<DrainTimeoutPolicy> kNames[] = {{DrainTimeoutPolicy::kBlock, "Block"},
                                                            {DrainTimeoutPolicy::kForce, "Force"}};
  return kNames;
}

template <>
std::span<const EnumName<RestartAction>> EnumNames() {
  static constexpr EnumName<RestartAction> kNames[] = {{RestartAction::kRestartPod, "RestartPod"},
                                                       {RestartAction::kRestartJob, "RestartJob"},
                                                       {RestartAction::kFailJob, "FailJob"},
                                                       {RestartAction::kIgnore, "Ignore"}};
  return kNames;
}

template <>
std::span<const EnumName<ExitReason>> EnumNames() {
  static constexpr EnumName<ExitReason> kNames[] = {{ExitReason::kOomKilled, "OOMKilled"},
                                                    {ExitReason::kEvicted, "Evicted"},
                                                    {ExitReason::kPreempted, "Preempted"},
                                                    {ExitReason::kNodeLost, "NodeLost"},
                                                    {ExitReason::kError, "Error"}};
  return kNames;
}

template <>
std::span<const EnumName<CleanupPolicy>> EnumNames() {
  static constexpr EnumName<CleanupPolicy> kNames[] = {{CleanupPolicy::kRunning, "Running"},
                                                       {CleanupPolicy::kAll, "All"},
                                                       {CleanupPolicy::kNone, "None"}};
  return kNames;
}

template <>
std::span<const EnumName<TlsMode>> EnumNames() {
  static constexpr EnumName<TlsMode> kNames[] = {{TlsMode::kAuto, "Auto"}, {TlsMode::kOff, "Off"}};
  return kNames;
}

template <>
std::span<const EnumName<NetworkPolicy>> EnumNames() {
  static constexpr EnumName<NetworkPolicy> kNames[] = {{NetworkPolicy::kIsolated, "Isolated"},
                                                       {NetworkPolicy::kOff, "Off"}};
  return kNames;
}

}  // namespace pushpull
