// SPDX-License-Identifier: Apache-2.0
#include "operator/cmd/config.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/job/object_reader.h"
#include "runtime/job/problems.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull_operator {

using pushpull::IntRange;
using pushpull::ManifestProblem;
using pushpull::ObjectReader;
using pushpull::Problems;

namespace {

constexpr size_t kNamespacesMax = 1000;
constexpr IntRange kWorkers{.min = 1, .max = 256};
constexpr IntRange kRequests{.min = 1, .max = 100'000};
constexpr IntRange kLeaseSeconds{.min = 1, .max = 3600};
// At most a tenth of the authority's lifetime.
constexpr IntRange kCertificateSeconds{.min = 30, .max = 365 * 24 * 3600};
constexpr IntRange kPorts{.min = 0, .max = 65535};

void ReadLogLevel(ObjectReader& reader, Problems& problems, OperatorConfig& config) {
  std::string name = "info";
  if (!reader.ReadString("logLevel", name)) return;
  // "warn" is common in charts; the members' programs say "warning".
  config.member_log_level = name == "warn" ? "warning" : name;
  const absl::StatusOr<pushpull::LogLevel> level = pushpull::ParseLogLevel(config.member_log_level);
  if (level.ok()) {
    config.log_level = *level;
  } else {
    problems.Add("logLevel",
                 absl::StrCat("must be debug, info, warn or error, is ", pushpull::Quoted(name)));
  }
}

void ReadClient(ObjectReader& reader, OperatorConfig& config) {
  int qps = static_cast<int>(config.rate_limit.qps);
  reader.ReadInt("qps", kRequests, qps);
  reader.ReadInt("burst", kRequests, config.rate_limit.burst);
  config.rate_limit.qps = qps;
}

void ReadElection(ObjectReader& reader, Problems& problems, OperatorConfig& config) {
  reader.ReadBool("enabled", config.has_election);
  reader.ReadString("leaseName", config.lease.name);
  reader.ReadString("leaseNamespace", config.lease.object_namespace);
  reader.ReadSeconds("leaseDurationSeconds", kLeaseSeconds, config.lease_times.lease_duration);
  reader.ReadSeconds("renewDeadlineSeconds", kLeaseSeconds, config.lease_times.renew_deadline);
  reader.ReadSeconds("retryPeriodSeconds", kLeaseSeconds, config.lease_times.retry_period);
  const absl::Status times = Validate(config.lease_times);
  if (!times.ok()) problems.Add("leaderElection", std::string(times.message()));
  if (config.lease.name.empty()) problems.Add("leaderElection.leaseName", "must not be empty");
}

OperatorConfig Read(const pushpull::Tree& root, Problems& problems) {
  OperatorConfig config;
  ObjectReader reader(root, "", problems);
  ReadLogLevel(reader, problems, config);
  reader.ReadString("runtimeImage", config.runtime_image);
  reader.Require("runtimeImage");
  reader.ReadJson("podSecurityContext", config.pod_security_context);
  reader.ReadStrings("namespaces", kNamespacesMax, config.namespaces);
  reader.ReadInt("workers", kWorkers, config.workers);
  reader.ReadSeconds("certificateLifeSeconds", kCertificateSeconds, config.certificate_lifetime);
  reader.ReadObject("client", [&](ObjectReader& client) { ReadClient(client, config); });
  reader.ReadObject("leaderElection",
                    [&](ObjectReader& election) { ReadElection(election, problems, config); });
  int port = config.metrics_port;
  reader.ReadInt("metricsPort", kPorts, port);
  config.metrics_port = static_cast<uint16_t>(port);
  return config;
}

}  // namespace

absl::StatusOr<OperatorConfig> ParseConfig(absl::string_view text, const std::string& file) {
  Problems problems;
  OperatorConfig config;
  const std::optional<pushpull::Tree> root = pushpull::ReadYaml(text, problems);
  if (root.has_value()) config = Read(*root, problems);
  if (problems.empty()) return config;
  const std::vector<ManifestProblem> found = problems.Take();
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": ", absl::StrJoin(found, "; ", [](std::string* out, const ManifestProblem& problem) {
        absl::StrAppend(out, pushpull::ToString(problem));
      })));
}

}  // namespace pushpull_operator
