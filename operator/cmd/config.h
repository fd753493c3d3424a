// SPDX-License-Identifier: Apache-2.0
//
// The operator's configuration file, rendered by the chart
// (charts/pushpull/templates/operator/config.yaml) and read once.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/children/member_pod.h"
#include "operator/kube/object.h"
#include "operator/kube/rate_limit.h"
#include "operator/lease/election.h"
#include "runtime/base/log.h"

namespace pushpull_operator {

struct OperatorConfig {
  pushpull::LogLevel log_level = pushpull::LogLevel::kInfo;
  std::string member_log_level = "info";  // the same, as the members' programs spell it
  std::string runtime_image;              // default image of servers and coordinators
  std::string pod_security_context = kSecurityContext;  // of members' pods, as JSON
  std::vector<std::string> namespaces;                  // watched namespaces; empty: all
  int workers = 8;
  std::chrono::seconds certificate_lifetime{std::chrono::days(90)};  // of member certificates
  RateLimit rate_limit;
  bool has_election = true;
  ObjectKey lease{.object_namespace = "",
                  .name = "pushpull"};  // empty namespace: the operator's own
  LeaseTimes lease_times;
  uint16_t metrics_port = 9464;  // 0: any free port
};

// kInvalidArgument names the file and every unknown, missing or invalid field.
absl::StatusOr<OperatorConfig> ParseConfig(absl::string_view text, const std::string& file);

}  // namespace pushpull_operator
