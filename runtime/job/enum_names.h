// SPDX-License-Identifier: Apache-2.0
//
// How the manifest spells each enumeration of training_job.h; reading and printing use this one
// table.
#pragma once

#include <optional>
#include <span>

#include "absl/strings/string_view.h"

#include "runtime/job/training_job.h"

namespace pushpull {

template <typename Enum>
struct EnumName {
  Enum value;
  absl::string_view name;
};

// All values of an enumeration, in the order of the documentation.
template <typename Enum>
std::span<const EnumName<Enum>> EnumNames();

template <>
std::span<const EnumName<JobRole>> EnumNames();
template <>
std::span<const EnumName<SyncMode>> EnumNames();
template <>
std::span<const EnumName<NonFinitePolicy>> EnumNames();
template <>
std::span<const EnumName<StallPolicy>> EnumNames();
template <>
std::span<const EnumName<DrainTimeoutPolicy>> EnumNames();
template <>
std::span<const EnumName<RestartAction>> EnumNames();
template <>
std::span<const EnumName<ExitReason>> EnumNames();
template <>
std::span<const EnumName<CleanupPolicy>> EnumNames();
template <>
std::span<const EnumName<TlsMode>> EnumNames();
template <>
std::span<const EnumName<NetworkPolicy>> EnumNames();

// "Sync" for SyncMode::kSync. Valid for the life of the program.
template <typename Enum>
absl::string_view NameOf(Enum value) {
  for (const EnumName<Enum>& entry : EnumNames<Enum>()) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

// None where no value has this name.
template <typename Enum>
std::optional<Enum> ValueOf(absl::string_view name) {
  for (const EnumName<Enum>& entry : EnumNames<Enum>()) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace pushpull
