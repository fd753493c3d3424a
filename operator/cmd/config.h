// SPDX-License-Identifier: Apache-2.0
//
// What the operator is told by its file, which the chart renders
// (charts/pushpull/templates/operator/config.yaml) and which it reads once.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/rate_limit.h"
#include "operator/kube/resource.h"
#include "operator/lease/election.h"
#include "runtime/base/log.h"

namespace pushpull_operator {

struct OperatorConfig {
  pushpull::LogLevel log_level = pushpull::LogLevel::kInfo;
  std::string member_log_level = "info";  // the same, as the programs of members take it
  std::string runtime_image;              // of servers and coordinators that name none
  std::vector<std::string> namespaces;    // whose jobs it runs; empty: all
  int workers = 8;
  std::chrono::seconds certificate_life{std::chrono::days(90)};  // of the members of jobs
  RateLimit rate_limit;
  bool has_election = true;
  ObjectKey lease{.object_namespace = "", .name = "pushpull"};  // no namespace: the operator's own
  LeaseTimes lease_times;
  uint16_t metrics_port = 9464;  // 0: a free one
};

// kInvalidArgument names the file, and every field that is unknown, missing or wrong.
absl::StatusOr<OperatorConfig> ParseConfig(absl::string_view text, const std::string& file);

}  // namespace pushpull_operator
