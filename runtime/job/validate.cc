// SPDX-License-Identifier: Apache-2.0
//
// Rules between fields; see validate.h.
#include "runtime/job/validate.h"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

#include "runtime/job/enum_names.h"

namespace pushpull {

namespace {

// A pod is named <job>-coordinator or <job>-worker-4095, and what Kubernetes adds must fit into 63.
constexpr size_t kNameBytesMax = 48;
constexpr size_t kLabelBytesMax = 63;
constexpr size_t kSubdomainBytesMax = 253;

// Adds the problems of broken rules, judged by what was wrong before the first of them.
class RuleChecker {
 public:
  explicit RuleChecker(Problems& problems) : before_(problems), problems_(problems) {}

  // Reports a broken rule at `field` unless it, or another field that the rule reads, is wrong
  // anyway.
  void Broken(std::string field,
              std::string text,
              std::initializer_list<absl::string_view> others = {}) {
    const auto is_wrong = [&](absl::string_view other) { return before_.Touches(other); };
    if (before_.Covers(field) || absl::c_any_of(others, is_wrong)) return;
    problems_.Add(std::move(field), std::move(text));
  }

 private:
  const Problems before_;
  Problems& problems_;
};

bool IsLowerAlnum(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
         absl::ascii_islower(static_cast<unsigned char>(c));
}

// RFC 1123 label, in lower case.
bool IsDnsLabel(absl::string_view text) {
  return !text.empty() && text.size() <= kLabelBytesMax && IsLowerAlnum(text.front()) &&
         IsLowerAlnum(text.back()) &&
         absl::c_all_of(text, [](char c) { return IsLowerAlnum(c) || c == '-'; });
}

// RFC 1123 labels between dots.
bool IsDnsSubdomain(absl::string_view text) {
  const std::vector<absl::string_view> labels = absl::StrSplit(text, '.');
  return text.size() <= kSubdomainBytesMax && absl::c_all_of(labels, IsDnsLabel);
}

// The second half of a label's key, and a label's value when it is not empty.
bool IsLabelWord(absl::string_view text) {
  const auto is_alnum = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !text.empty() && text.size() <= kLabelBytesMax && is_alnum(text.front()) &&
         is_alnum(text.back()) &&
         absl::c_all_of(text, [&](char c) { return is_alnum(c) || absl::StrContains("-_.", c); });
}

// "app" or "example.com/app".
bool IsLabelKey(absl::string_view text) {
  const size_t slash = text.find('/');
  if (slash == absl::string_view::npos) return IsLabelWord(text);
  return IsDnsSubdomain(text.substr(0, slash)) && IsLabelWord(text.substr(slash + 1));
}

void CheckMetadata(const JobMetadata& metadata, RuleChecker& rules) {
  // Its services begin with a letter (RFC 1035), so the job does.
  const bool starts_with_letter =
      !metadata.name.empty() && absl::ascii_isalpha(static_cast<unsigned char>(metadata.name[0]));
  if (!IsDnsLabel(metadata.name) || !starts_with_letter || metadata.name.size() > kNameBytesMax) {
    rules.Broken("metadata.name",
                 absl::StrCat("must be at most ",
                              kNameBytesMax,
                              " lower-case letters, digits and '-', starting with a letter and "
                              "ending with a letter or digit, is ",
                              Quoted(metadata.name)));
  }
  if (!metadata.namespace_name.empty() && !IsDnsLabel(metadata.namespace_name)) {
    rules.Broken("metadata.namespace",
                 absl::StrCat("must be a DNS label, is ", Quoted(metadata.namespace_name)));
  }
  for (const auto& [key, value] : metadata.labels) {
    const std::string field = JoinPath("metadata.labels", key);
    if (!IsLabelKey(key)) rules.Broken(field, "is not a valid key of a label");
    if (!value.empty() && !IsLabelWord(value)) {
      rules.Broken(
          field,
          absl::StrCat("must be at most 63 letters, digits, '-', '_' and '.', is ", Quoted(value)));
    }
  }
  for (const auto& [key, value] : metadata.annotations) {
    if (!IsLabelKey(absl::AsciiStrToLower(key))) {
      rules.Broken(JoinPath("metadata.annotations", key), "is not a valid key of an annotation");
    }
  }
}

void CheckProgram(const TrainingJobSpec& spec, RuleChecker& rules) {
  if (!spec.command.empty() && spec.command[0].empty()) {
    rules.Broken("spec.command", "must name a program first, that word is empty");
  }
  for (size_t i = 0; i < spec.env.size(); ++i) {
    const EnvVar& variable = spec.env[i];
    const std::string field = JoinPath("spec.env", i);
    if (variable.name.empty() || absl::StrContains(variable.name, '=')) {
      rules.Broken(field + ".name",
                   absl::StrCat("must be a name without '=', is ", Quoted(variable.name)));
    }
    if (!variable.value.empty() && !variable.value_from_json.empty()) {
      rules.Broken(field, "must have at most one of value and valueFrom, has both");
    }
  }
}

// Of `spec.servers` or `spec.workers`.
template <typename Spec>
void CheckReplicas(const std::string& path, const Spec& spec, RuleChecker& rules) {
  const auto [min, max] = std::pair(spec.min_replicas, spec.max_replicas);
  if (min > max) {
    rules.Broken(path + ".minReplicas",
                 absl::Substitute("must be at most maxReplicas ($0), is $1", max, min),
                 {path + ".maxReplicas"});
  } else if (spec.replicas < min || spec.replicas > max) {
    constexpr absl::string_view kText =
        "must be between minReplicas ($0) and maxReplicas ($1), is $2";
    rules.Broken(path + ".replicas",
                 absl::Substitute(kText, min, max, spec.replicas),
                 {path + ".minReplicas", path + ".maxReplicas"});
  }
}

void CheckServers(const TrainingJobSpec& spec, RuleChecker& rules) {
  const ServersSpec& servers = spec.servers;
  CheckReplicas("spec.servers", servers, rules);
  if (servers.replication > 0 && servers.replication >= servers.replicas) {
    rules.Broken("spec.servers.replication",
                 absl::Substitute("must be less than spec.servers.replicas ($0), is $1",
                                  servers.replicas,
                                  servers.replication),
                 {"spec.servers.replicas"});
  }
}

void CheckSync(const TrainingJobSpec& spec, RuleChecker& rules) {
  const SyncSpec& sync = spec.sync;
  const auto needs = [&](const std::string& field, absl::string_view modes) {
    rules.Broken(field,
                 absl::StrCat("needs spec.sync.mode ", modes, ", which is ", NameOf(sync.mode)),
                 {"spec.sync.mode"});
  };
  if (sync.staleness > 0 && sync.mode != SyncMode::kBounded)
    needs("spec.sync.staleness", "Bounded");
  if (sync.gated && sync.mode != SyncMode::kSync) needs("spec.sync.gated", "Sync");
  if (sync.gated && sync.mode == SyncMode::kSync && sync.backup_workers > 0) {
    rules.Broken("spec.sync.gated",
                 absl::StrCat("needs spec.sync.backupWorkers 0, which is ", sync.backup_workers),
                 {"spec.sync.backupWorkers"});
  }
  if (sync.deterministic && sync.mode != SyncMode::kSync) needs("spec.sync.deterministic", "Sync");
  if (sync.backup_workers > 0 && sync.mode != SyncMode::kSync) {
    needs("spec.sync.backupWorkers", "Sync");
  } else if (sync.backup_workers > 0 && sync.backup_workers >= spec.workers.replicas) {
    rules.Broken("spec.sync.backupWorkers",
                 absl::Substitute("must be less than spec.workers.replicas ($0), is $1",
                                  spec.workers.replicas,
                                  sync.backup_workers),
                 {"spec.workers.replicas"});
  }
}

bool IsFolderUri(absl::string_view text) {
  constexpr absl::string_view kScheme = "file:///";
  return absl::StartsWith(text, kScheme) && text.size() > kScheme.size();
}

void CheckCheckpoint(const CheckpointSpec& checkpoint, RuleChecker& rules) {
  if (checkpoint.claim.empty() == checkpoint.uri.empty()) {
    rules.Broken("spec.checkpoint",
                 absl::StrCat("must have exactly one of claim and uri, has ",
                              checkpoint.claim.empty() ? "none" : "both"),
                 {"spec.checkpoint.claim", "spec.checkpoint.uri"});
  }
  if (!checkpoint.claim.empty() && !IsDnsSubdomain(checkpoint.claim)) {
    rules.Broken(
        "spec.checkpoint.claim",
        absl::StrCat("must be the name of a PersistentVolumeClaim, is ", Quoted(checkpoint.claim)));
  }
  if (!checkpoint.uri.empty() && !IsFolderUri(checkpoint.uri)) {
    rules.Broken("spec.checkpoint.uri",
                 absl::StrCat("must be a folder such as file:///var/checkpoints, is ",
                              Quoted(checkpoint.uri)));
  }
  if (!absl::StartsWith(checkpoint.path, "/")) {
    rules.Broken("spec.checkpoint.path",
                 absl::StrCat("must start with '/', is ", Quoted(checkpoint.path)));
  } else if (checkpoint.path != "/" && checkpoint.claim.empty() && !checkpoint.uri.empty()) {
    rules.Broken("spec.checkpoint.path",
                 "is a folder inside spec.checkpoint.claim, which is not set; give the whole path "
                 "in spec.checkpoint.uri",
                 {"spec.checkpoint.claim"});
  }
  if (checkpoint.restore_from.empty()) {
    rules.Broken("spec.checkpoint.restoreFrom", "must name a checkpoint or be \"latest\", is \"\"");
  }
}

void CheckRestart(const RestartSpec& restart, RuleChecker& rules) {
  if (restart.initial_delay > restart.max_delay) {
    rules.Broken("spec.restart.initialDelaySeconds",
                 absl::Substitute("must be at most maxDelaySeconds ($0), is $1",
                                  restart.max_delay.count(),
                                  restart.initial_delay.count()),
                 {"spec.restart.maxDelaySeconds"});
  }
  for (size_t i = 0; i < restart.rules.size(); ++i) {
    const RestartRule& rule = restart.rules[i];
    const std::string field = JoinPath("spec.restart.rules", i);
    if (rule.exit_codes.has_value() == rule.reason.has_value()) {
      rules.Broken(field,
                   absl::StrCat("must have exactly one of exitCodes and reason, has ",
                                rule.reason.has_value() ? "both" : "none"),
                   {field + ".exitCodes", field + ".reason"});
    }
    if (rule.exit_codes.has_value() &&
        rule.exit_codes->in.empty() == rule.exit_codes->not_in.empty()) {
      rules.Broken(field + ".exitCodes",
                   absl::StrCat("must list codes in exactly one of in and notIn, does in ",
                                rule.exit_codes->in.empty() ? "none" : "both"),
                   {field + ".exitCodes.in", field + ".exitCodes.notIn"});
    }
  }
}

void CheckSecurity(const SecuritySpec& security, RuleChecker& rules) {
  if (security.secret_name.empty()) return;
  if (security.tls == TlsMode::kOff) {
    rules.Broken("spec.security.secretName",
                 "needs spec.security.tls Auto, which is Off",
                 {"spec.security.tls"});
  }
  if (!IsDnsSubdomain(security.secret_name)) {
    rules.Broken("spec.security.secretName",
                 absl::StrCat("must be the name of a Secret, is ", Quoted(security.secret_name)));
  }
}

}  // namespace

void CheckRules(const TrainingJob& job, Problems& problems) {
  RuleChecker rules(problems);
  CheckMetadata(job.metadata, rules);
  CheckProgram(job.spec, rules);
  CheckServers(job.spec, rules);
  CheckReplicas("spec.workers", job.spec.workers, rules);
  CheckSync(job.spec, rules);
  if (job.spec.checkpoint.has_value()) CheckCheckpoint(*job.spec.checkpoint, rules);
  CheckRestart(job.spec.restart, rules);
  CheckSecurity(job.spec.security, rules);
}

}  // namespace pushpull
