// SPDX-License-Identifier: Apache-2.0
//
// Rules between fields; see validate.h.
#include "runtime/job/validate.h"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"

#include "runtime/job/enum_names.h"

namespace pushpull {

namespace {

// A pod is named <job>-coordinator or <job>-worker-4095, and with what Kubernetes adds it must fit
// in 63.
constexpr size_t kNameBytesMax = 48;
constexpr size_t kLabelBytesMax = 63;
constexpr size_t kSubdomainBytesMax = 253;

// Adds a problem for each broken rule, given the problems that existed before the first rule.
class RuleChecker {
 public:
  // `manifest`: fields that are not set in it may still get any value; null: they have their
  // defaults.
  explicit RuleChecker(Problems& problems, const Tree* manifest = nullptr)
      : before_(problems), problems_(problems), manifest_(manifest) {}

  // Reports at `field` that a rule does not hold, unless `field`, or another field that the rule
  // reads, already has a problem or is not known.
  void Check(bool holds,
             const std::string& field,
             std::string text,
             std::initializer_list<absl::string_view> others = {}) {
    const auto is_wrong = [&](absl::string_view other) {
      return before_.Touches(other) || !IsKnown(other);
    };
    if (holds || before_.Covers(field) || absl::c_any_of(others, is_wrong)) return;
    if (!IsKnown(field)) return;
    problems_.Add(field, std::move(text));
  }

 private:
  // An item of a list is complete: a merge replaces lists as a whole.
  bool IsKnown(absl::string_view field) const {
    return manifest_ == nullptr || absl::StrContains(field, '[') ||
           BytesSet(*manifest_, field) == field.size();
  }

  const Problems before_;
  Problems& problems_;
  const Tree* const manifest_;
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

// RFC 1123 labels separated by dots.
bool IsDnsSubdomain(absl::string_view text) {
  const std::vector<absl::string_view> labels = absl::StrSplit(text, '.');
  return text.size() <= kSubdomainBytesMax && absl::c_all_of(labels, IsDnsLabel);
}

// The name part of a label's key, or a label's value if it is not empty.
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

// Namespaces and jobs have folders of their names next to checkpoints, so they may not use these.
bool IsNameOfCheckpoint(absl::string_view text) {
  constexpr absl::string_view kPrefix = "step-";
  constexpr size_t kDigitsMin = 12;
  if (!absl::ConsumePrefix(&text, kPrefix)) return false;
  return text.size() >= kDigitsMin && absl::c_all_of(text, absl::ascii_isdigit);
}

void CheckMetadata(const JobMetadata& metadata, RuleChecker& rules) {
  // Its services must begin with a letter (RFC 1035), so the job must too.
  const std::string& name = metadata.name;
  rules.Check(IsDnsLabel(name) && absl::ascii_isalpha(static_cast<unsigned char>(name[0])) &&
                  name.size() <= kNameBytesMax,
              "metadata.name",
              absl::StrCat("must be at most ",
                           kNameBytesMax,
                           " lower-case letters, digits and '-', starting with a letter and "
                           "ending with a letter or digit, is ",
                           Quoted(name)));
  constexpr absl::string_view kIsCheckpoint =
      "must not be 'step-' and 12 digits or more, which is the name of a checkpoint, is ";
  rules.Check(
      !IsNameOfCheckpoint(name), "metadata.name", absl::StrCat(kIsCheckpoint, Quoted(name)));
  const std::string& space = metadata.namespace_name;
  rules.Check(space.empty() || IsDnsLabel(space),
              "metadata.namespace",
              absl::StrCat("must be a DNS label, is ", Quoted(space)));
  rules.Check(
      !IsNameOfCheckpoint(space), "metadata.namespace", absl::StrCat(kIsCheckpoint, Quoted(space)));
  for (const auto& [key, value] : metadata.labels) {
    const std::string field = JoinPath("metadata.labels", key);
    rules.Check(IsLabelKey(key), field, "is not a valid key of a label");
    rules.Check(
        value.empty() || IsLabelWord(value),
        field,
        absl::StrCat("must be at most 63 letters, digits, '-', '_' and '.', is ", Quoted(value)));
  }
  for (const auto& [key, value] : metadata.annotations) {
    rules.Check(IsLabelKey(absl::AsciiStrToLower(key)),
                JoinPath("metadata.annotations", key),
                "is not a valid key of an annotation");
  }
}

void CheckProgram(const TrainingJobSpec& spec, RuleChecker& rules) {
  rules.Check(spec.command.empty() || !spec.command[0].empty(),
              "spec.command",
              "must name a program first, that word is empty");
  for (size_t i = 0; i < spec.env.size(); ++i) {
    const EnvVar& variable = spec.env[i];
    const std::string field = JoinPath("spec.env", i);
    rules.Check(!variable.name.empty() && !absl::StrContains(variable.name, '='),
                field + ".name",
                absl::StrCat("must be a name without '=', is ", Quoted(variable.name)));
    rules.Check(variable.value.empty() || variable.value_from_json.empty(),
                field,
                "must have at most one of value and valueFrom, has both");
  }
}

// Checks `spec.servers` or `spec.workers`.
template <typename Spec>
void CheckReplicas(const std::string& path, const Spec& spec, RuleChecker& rules) {
  const auto [min, max] = std::pair(spec.min_replicas, spec.max_replicas);
  rules.Check(min <= max,
              path + ".minReplicas",
              absl::Substitute("must be at most maxReplicas ($0), is $1", max, min),
              {path + ".maxReplicas"});
  const std::string text = absl::Substitute(
      "must be between minReplicas ($0) and maxReplicas ($1), is $2", min, max, spec.replicas);
  rules.Check(min > max || min <= spec.replicas, path + ".replicas", text, {path + ".minReplicas"});
  rules.Check(min > max || spec.replicas <= max, path + ".replicas", text, {path + ".maxReplicas"});
}

// There are no servers: fields about servers would have no effect.
void CheckNoServers(const ServersSpec& servers, RuleChecker& rules) {
  const auto unset = [&](bool is_set, const std::string& name) {
    rules.Check(!is_set,
                "spec.servers." + name,
                "has no effect with spec.sync.mode AllReduce, which has no servers; remove it",
                {"spec.sync.mode"});
  };
  const ServersSpec defaults;
  rules.Check(servers.replicas == 0,
              "spec.servers.replicas",
              absl::StrCat("must be 0 with spec.sync.mode AllReduce, is ", servers.replicas),
              {"spec.sync.mode"});
  unset(servers.min_replicas != defaults.min_replicas, "minReplicas");
  unset(servers.max_replicas != defaults.max_replicas, "maxReplicas");
  unset(servers.replication != defaults.replication, "replication");
  unset(servers.threads != defaults.threads, "threads");
  unset(servers.loss_grace != defaults.loss_grace, "lossGraceSeconds");
  unset(!servers.image.empty(), "image");
  unset(!servers.resources_json.empty(), "resources");
  unset(!servers.template_json.empty(), "template");
}

// Rejects what only servers can do.
void CheckRing(const TrainingJobSpec& spec, RuleChecker& rules) {
  const auto unset = [&](bool is_set, const std::string& field) {
    rules.Check(!is_set,
                field,
                "needs servers, which a job with spec.sync.mode AllReduce does not have; remove it",
                {"spec.sync.mode"});
  };
  rules.Check(spec.workers.replicas <= kRingWorkersMax,
              "spec.workers.replicas",
              absl::Substitute("must be at most $0 with spec.sync.mode AllReduce, is $1",
                               kRingWorkersMax,
                               spec.workers.replicas),
              {"spec.sync.mode"});
  unset(spec.workers.colocated_server, "spec.workers.colocatedServer");
  unset(spec.scaling != ScalingSpec{}, "spec.scaling");
  const SyncSpec& sync = spec.sync;
  const SyncSpec defaults;
  unset(sync.scale_by_staleness, "spec.sync.scaleByStaleness");
  unset(sync.non_finite != defaults.non_finite, "spec.sync.nonFinite");
  unset(sync.stall != defaults.stall, "spec.sync.stallSeconds");
  unset(sync.on_stall != defaults.on_stall, "spec.sync.onStall");
  unset(spec.restart.role_limits.servers.has_value(), "spec.restart.roleLimits.servers");
  const SchedulingSpec scheduling = spec.scheduling.value_or(SchedulingSpec());
  unset(!scheduling.spread_servers, "spec.scheduling.spreadServers");
  unset(!scheduling.pdb, "spec.scheduling.pdb");
}

void CheckServers(const TrainingJobSpec& spec, RuleChecker& rules) {
  const ServersSpec& servers = spec.servers;
  if (spec.sync.mode == SyncMode::kAllReduce) return CheckNoServers(servers, rules);
  if (servers.replicas == 0) {
    rules.Check(false,
                "spec.servers.replicas",
                "must be between 1 and 1024, is 0; only spec.sync.mode AllReduce has no servers",
                {"spec.sync.mode"});
    return;
  }
  CheckReplicas("spec.servers", servers, rules);
  rules.Check(servers.replication <= 0 || servers.replication < servers.replicas,
              "spec.servers.replication",
              absl::Substitute("must be less than spec.servers.replicas ($0), is $1",
                               servers.replicas,
                               servers.replication),
              {"spec.servers.replicas"});
}

// Servers get the sums of groups. With backup workers and gated steps they would have to leave out
// single workers.
void CheckLocalReduce(const TrainingJobSpec& spec, RuleChecker& rules) {
  const std::string field = "spec.sync.localReduce";
  const SyncSpec& sync = spec.sync;
  if (sync.local_reduce == LocalReduce::kNone) return;
  const bool is_sync = sync.mode == SyncMode::kSync;
  rules.Check(is_sync,
              field,
              absl::StrCat("needs spec.sync.mode Sync, which is ", NameOf(sync.mode)),
              {"spec.sync.mode"});
  rules.Check(!is_sync || sync.backup_workers == 0,
              field,
              absl::StrCat("needs spec.sync.backupWorkers 0, which is ", sync.backup_workers),
              {"spec.sync.backupWorkers"});
  // Nor could they measure the noise between the workers' gradients. And who sums what depends on
  // which workers are late, so the last bits do.
  const auto needs_not = [&](bool is_set, const std::string& other) {
    rules.Check(!is_sync || !is_set,
                field,
                absl::StrCat("needs ", other, " false, which is true"),
                {other});
  };
  needs_not(sync.gated, "spec.sync.gated");
  needs_not(sync.deterministic, "spec.sync.deterministic");
  needs_not(sync.noise_scale, "spec.sync.noiseScale");
  rules.Check(sync.local_reduce != LocalReduce::kRack || !spec.workers.topology_key.empty(),
              field,
              "Rack needs spec.workers.topologyKey, the label of nodes that says their rack; set "
              "it, or use Host",
              {"spec.workers.topologyKey"});
}

void CheckSync(const TrainingJobSpec& spec, RuleChecker& rules) {
  const SyncSpec& sync = spec.sync;
  const bool has_backup = sync.backup_workers > 0;
  if (sync.mode == SyncMode::kAllReduce) CheckRing(spec, rules);
  const auto needs = [&](SyncMode mode, bool is_set, const std::string& field) {
    rules.Check(
        !is_set || sync.mode == mode,
        field,
        absl::Substitute("needs spec.sync.mode $0, which is $1", NameOf(mode), NameOf(sync.mode)),
        {"spec.sync.mode"});
  };
  needs(SyncMode::kBounded, sync.staleness > 0, "spec.sync.staleness");
  needs(SyncMode::kSync, sync.gated, "spec.sync.gated");
  const bool is_sync = sync.mode == SyncMode::kSync;
  rules.Check(!sync.gated || !is_sync || !has_backup,
              "spec.sync.gated",
              absl::StrCat("needs spec.sync.backupWorkers 0, which is ", sync.backup_workers),
              {"spec.sync.backupWorkers"});
  if (sync.mode != SyncMode::kAllReduce)
    needs(SyncMode::kSync, sync.deterministic, "spec.sync.deterministic");
  needs(SyncMode::kSync, sync.noise_scale, "spec.sync.noiseScale");
  needs(SyncMode::kSync, has_backup, "spec.sync.backupWorkers");
  rules.Check(!has_backup || !is_sync || sync.backup_workers < spec.workers.replicas,
              "spec.sync.backupWorkers",
              absl::Substitute("must be less than spec.workers.replicas ($0), is $1",
                               spec.workers.replicas,
                               sync.backup_workers),
              {"spec.workers.replicas"});
  CheckLocalReduce(spec, rules);
}

bool IsFolderUri(absl::string_view text) {
  constexpr absl::string_view kScheme = "file:///";
  return absl::StartsWith(text, kScheme) && text.size() > kScheme.size();
}

bool LeadsUp(absl::string_view path) {
  const std::vector<absl::string_view> folders = absl::StrSplit(path, '/');
  return absl::c_linear_search(folders, "..");
}

void CheckCheckpoint(const CheckpointSpec& checkpoint, RuleChecker& rules) {
  const auto& [claim, uri, path] = std::tie(checkpoint.claim, checkpoint.uri, checkpoint.path);
  rules.Check(
      claim.empty() != uri.empty(),
      "spec.checkpoint",
      absl::StrCat("must have exactly one of claim and uri, has ", claim.empty() ? "none" : "both"),
      {"spec.checkpoint.claim", "spec.checkpoint.uri"});
  rules.Check(claim.empty() || IsDnsSubdomain(claim),
              "spec.checkpoint.claim",
              absl::StrCat("must be the name of a PersistentVolumeClaim, is ", Quoted(claim)));
  rules.Check(uri.empty() || IsFolderUri(uri),
              "spec.checkpoint.uri",
              absl::StrCat("must be a folder such as file:///var/checkpoints, is ", Quoted(uri)));
  rules.Check(absl::StartsWith(path, "/"),
              "spec.checkpoint.path",
              absl::StrCat("must start with '/', is ", Quoted(path)));
  rules.Check(!absl::StartsWith(path, "/") || !LeadsUp(path),
              "spec.checkpoint.path",
              absl::StrCat("must not lead out of the claim by '..', is ", Quoted(path)));
  rules.Check(!absl::StartsWith(path, "/") || path == "/" || !claim.empty() || uri.empty(),
              "spec.checkpoint.path",
              "is a folder inside spec.checkpoint.claim, which is not set; give the whole path "
              "in spec.checkpoint.uri",
              {"spec.checkpoint.claim"});
  rules.Check(!checkpoint.restore_from.empty(),
              "spec.checkpoint.restoreFrom",
              "must name a checkpoint or be \"latest\", is \"\"");
}

void CheckRestart(const RestartSpec& restart, RuleChecker& rules) {
  rules.Check(restart.initial_delay <= restart.max_delay,
              "spec.restart.initialDelaySeconds",
              absl::Substitute("must be at most maxDelaySeconds ($0), is $1",
                               restart.max_delay.count(),
                               restart.initial_delay.count()),
              {"spec.restart.maxDelaySeconds"});
  for (size_t i = 0; i < restart.rules.size(); ++i) {
    const RestartRule& rule = restart.rules[i];
    const std::string field = JoinPath("spec.restart.rules", i);
    rules.Check(rule.exit_codes.has_value() != rule.reason.has_value(),
                field,
                absl::StrCat("must have exactly one of exitCodes and reason, has ",
                             rule.reason.has_value() ? "both" : "none"),
                {field + ".exitCodes", field + ".reason"});
    if (!rule.exit_codes.has_value()) continue;
    rules.Check(rule.exit_codes->in.empty() != rule.exit_codes->not_in.empty(),
                field + ".exitCodes",
                absl::StrCat("must list codes in exactly one of in and notIn, does in ",
                             rule.exit_codes->in.empty() ? "none" : "both"),
                {field + ".exitCodes.in", field + ".exitCodes.notIn"});
  }
}

void CheckSecurity(const SecuritySpec& security, RuleChecker& rules) {
  const std::string& secret = security.secret_name;
  rules.Check(secret.empty() || security.tls != TlsMode::kOff,
              "spec.security.secretName",
              "needs spec.security.tls Auto, which is Off",
              {"spec.security.tls"});
  rules.Check(secret.empty() || IsDnsSubdomain(secret),
              "spec.security.secretName",
              absl::StrCat("must be the name of a Secret, is ", Quoted(secret)));
}

void CheckSpec(const TrainingJobSpec& spec, RuleChecker& rules) {
  const std::string& runtime = spec.runtime_ref;
  rules.Check(runtime.empty() || IsDnsSubdomain(runtime),
              "spec.runtimeRef.name",
              absl::StrCat("must be the name of a TrainingRuntime, is ", Quoted(runtime)));
  CheckProgram(spec, rules);
  CheckServers(spec, rules);
  CheckReplicas("spec.workers", spec.workers, rules);
  CheckSync(spec, rules);
  if (spec.checkpoint.has_value()) CheckCheckpoint(*spec.checkpoint, rules);
  CheckRestart(spec.restart, rules);
  CheckSecurity(spec.security, rules);
}

}  // namespace

void CheckRules(const TrainingJob& job, Problems& problems) {
  RuleChecker rules(problems);
  CheckMetadata(job.metadata, rules);
  CheckSpec(job.spec, rules);
}

void CheckRulesBeforeMerge(const TrainingJob& job, const Tree& manifest, Problems& problems) {
  RuleChecker rules(problems, &manifest);
  CheckMetadata(job.metadata, rules);
  CheckSpec(job.spec, rules);
}

void CheckRulesOfRuntime(const TrainingJob& runtime, const Tree& manifest, Problems& problems) {
  RuleChecker rules(problems, &manifest);
  const std::string& name = runtime.metadata.name;
  rules.Check(
      IsDnsSubdomain(name), "metadata.name", absl::StrCat("must be a DNS name, is ", Quoted(name)));
  CheckSpec(runtime.spec, rules);
}

}  // namespace pushpull
