// SPDX-License-Identifier: Apache-2.0
//
// How the manifest and the status spell each enumeration of training_job.h; reading and printing
// use this one table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>

#include "absl/strings/string_view.h"

#include "runtime/job/training_job.h"

namespace pushpull {

// The names of an enumeration's values, in the order of the values. Enumerations without names do
// not compile.
template <typename Enum>
inline constexpr std::nullptr_t kEnumNames = nullptr;
template <>
inline constexpr absl::string_view kEnumNames<JobRole>[] = {"Server", "Worker", "Coordinator"};
template <>
inline constexpr absl::string_view kEnumNames<SyncMode>[] = {
    "Sync", "Async", "Bounded", "AllReduce"};
template <>
inline constexpr absl::string_view kEnumNames<JobPhase>[] = {
    "Starting", "Running", "Succeeded", "Failed", "Recovering"};
template <>
inline constexpr absl::string_view kEnumNames<LocalReduce>[] = {"None", "Host", "Rack"};
template <>
inline constexpr absl::string_view kEnumNames<NonFinitePolicy>[] = {"Fail", "Skip", "Drop"};
template <>
inline constexpr absl::string_view kEnumNames<StallPolicy>[] = {"Warn", "DropWorker", "Fail"};
template <>
inline constexpr absl::string_view kEnumNames<RestoreScope>[] = {"All", "Values"};
template <>
inline constexpr absl::string_view kEnumNames<DrainTimeoutPolicy>[] = {"Block", "Force"};
template <>
inline constexpr absl::string_view kEnumNames<RestartAction>[] = {
    "RestartPod", "RestartJob", "FailJob", "Ignore"};
template <>
inline constexpr absl::string_view kEnumNames<SuccessPolicy>[] = {
    "AllWorkers", "AnyWorker", "Worker0"};
template <>
inline constexpr absl::string_view kEnumNames<ExitReason>[] = {
    "OOMKilled", "Evicted", "Preempted", "NodeLost", "Error"};
template <>
inline constexpr absl::string_view kEnumNames<CleanupPolicy>[] = {"Running", "All", "None"};
template <>
inline constexpr absl::string_view kEnumNames<PodRestartPolicy>[] = {"Never"};
template <>
inline constexpr absl::string_view kEnumNames<TlsMode>[] = {"Auto", "Off"};
template <>
inline constexpr absl::string_view kEnumNames<NetworkPolicy>[] = {"Isolated", "Off"};

// The number of an enumeration's first value.
template <typename Enum>
inline constexpr size_t kFirstValue = 0;
template <>
inline constexpr size_t kFirstValue<SyncMode> = static_cast<size_t>(SyncMode::kSync);
template <>
inline constexpr size_t kFirstValue<JobPhase> = static_cast<size_t>(JobPhase::kStarting);

// The value whose name is at this position of kEnumNames.
template <typename Enum>
constexpr Enum ValueAt(size_t position) {
  return static_cast<Enum>(position + kFirstValue<Enum>);
}

// Whether the number, which may come from a peer, is that of a value.
template <typename Enum>
requires std::is_array_v<decltype(kEnumNames<Enum>)>
constexpr bool IsKnown(Enum value) {
  return static_cast<size_t>(value) - kFirstValue<Enum> < std::size(kEnumNames<Enum>);
}

// "Sync" for SyncMode::kSync. Valid for the life of the program.
template <typename Enum>
absl::string_view NameOf(Enum value) {
  return IsKnown(value) ? kEnumNames<Enum>[static_cast<size_t>(value) - kFirstValue<Enum>] : "?";
}

// None if no value has this name.
template <typename Enum>
std::optional<Enum> ValueOf(absl::string_view name) {
  const std::span<const absl::string_view> names = kEnumNames<Enum>;
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return ValueAt<Enum>(static_cast<size_t>(found - names.begin()));
}

}  // namespace pushpull
