// SPDX-License-Identifier: Apache-2.0
//
// The TrainingJob manifest as plain structs, shared by `pushpull run` and the operator. A default
// here is the field's default; an empty string or list means that the field was not set, unless its
// comment says otherwise. parse.h reads text, validate.h has the rules between fields. Pass-through
// fields, which only Kubernetes understands, are kept as JSON text.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

inline constexpr char kTrainingJobApiVersion[] = "pushpull.dev/v1alpha1";
inline constexpr char kTrainingJobKind[] = "TrainingJob";
inline constexpr char kTrainingRuntimeKind[] = "TrainingRuntime";

// The values have the order of their names in enum_names.h.
enum class JobRole { kServer, kWorker, kCoordinator };
// Also on the wire, as numbers.
enum class SyncMode : uint8_t {
  kSync = 1,  // a step is complete when every worker has contributed to it
  kAsync,     // each push is applied when it arrives
  kBounded,   // likewise, and a read waits until no worker is more than `staleness` steps behind
  // Like kSync, but without servers: the workers sum gradients among themselves, and each applies
  // the optimizer to its own copy.
  kAllReduce,
};
// Likewise. kRecovering: the coordinator has restarted and is collecting its members' reports;
// until it has them the rest of the job's status is incomplete.
enum class JobPhase : uint8_t { kStarting = 1, kRunning, kSucceeded, kFailed, kRecovering };
// Which workers sum their gradients among themselves before they push to the servers.
enum class LocalReduce {
  kNone,  // each worker pushes its own
  kHost,  // the workers of a host
  kRack,  // the workers of a rack
};
enum class NonFinitePolicy { kFail, kSkip, kDrop };
enum class StallPolicy { kWarn, kDropWorker, kFail };
enum class DrainTimeoutPolicy { kBlock, kForce };
enum class RestartAction { kRestartPod, kRestartJob, kFailJob, kIgnore };
// Which workers must exit with 0 for the job to succeed.
enum class SuccessPolicy { kAllWorkers, kAnyWorker, kWorker0 };
enum class ExitReason { kOomKilled, kEvicted, kPreempted, kNodeLost, kError };
enum class CleanupPolicy { kRunning, kAll, kNone };
enum class PodRestartPolicy { kNever };  // of a template
enum class TlsMode { kAuto, kOff };
enum class NetworkPolicy { kIsolated, kOff };

struct JobMetadata {
  std::string name;            // DNS label, at most 48 characters, starts with a letter
  std::string namespace_name;  // metadata.namespace
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  friend bool operator==(const JobMetadata&, const JobMetadata&) = default;
};

struct EnvVar {
  std::string name;
  std::string value = {};
  std::string value_from_json = {};  // valueFrom, pass-through
  friend bool operator==(const EnvVar&, const EnvVar&) = default;
};

struct ServersSpec {
  int replicas = 1;  // 1 to 1,024, 0 in mode AllReduce; may change while the job runs
  int min_replicas = 1;
  int max_replicas = 1024;
  int replication = 0;                  // 0 to 2 copies of each shard beside the primary
  int threads = 1;                      // 1 to 64 threads of the data path (lanes) in each server
  std::chrono::seconds loss_grace{30};  // wait for a lost shard's members to come back
  std::string image;                    // unset: the chart's image
  std::string resources_json;           // ResourceRequirements, pass-through
  std::string template_json;            // PodTemplate overlay, pass-through
  friend bool operator==(const ServersSpec&, const ServersSpec&) = default;
};

// Workers in mode AllReduce: each has a connection to every other one (kRanksMax of
// collective/rank_mesh.h).
inline constexpr int kRingWorkersMax = 64;

struct WorkersSpec {
  int replicas = 1;  // 1 to 4,096
  int min_replicas = 1;
  int max_replicas = 4096;
  int gpus_per_worker = 0;  // 0: CPU
  std::optional<int>
      global_batch;               // samples a step over all workers; unset: each has its own batch
  bool colocated_server = false;  // a server container in each worker pod
  // The node label whose value is a member's rack; empty: racks are ignored.
  std::string topology_key;
  std::string resources_json;  // ResourceRequirements, pass-through
  std::string template_json;   // PodTemplate overlay, pass-through
  friend bool operator==(const WorkersSpec&, const WorkersSpec&) = default;
};

struct CoordinatorSpec {
  std::string resources_json;  // ResourceRequirements, pass-through
  std::string template_json;   // PodTemplate overlay, pass-through
  friend bool operator==(const CoordinatorSpec&, const CoordinatorSpec&) = default;
};

// Pod fields for the pods of every role; a role's template is merged over them.
struct PodDefaults {
  std::vector<std::string> image_pull_secrets = {};
  std::string service_account_name = {};
  std::vector<std::string> tolerations_json = {};  // each one pass-through
  std::map<std::string, std::string> node_selector = {};
  std::map<std::string, std::string> labels = {};
  std::map<std::string, std::string> annotations = {};
  friend bool operator==(const PodDefaults&, const PodDefaults&) = default;
};

// Keys of the labels that the operator sets on pods and selects them by. Nobody else may set them.
inline constexpr std::array kReservedLabels = {"app.kubernetes.io/component",
                                               "app.kubernetes.io/instance",
                                               "app.kubernetes.io/managed-by",
                                               "app.kubernetes.io/name",
                                               "pushpull.dev/index",
                                               "pushpull.dev/job",
                                               "pushpull.dev/term"};

// The project's variables with which a user tunes members. The others with this prefix say who a
// member is and where its peers are, and are set by whatever starts the member.
inline constexpr char kVariablePrefix[] = "PUSHPULL_";
inline constexpr std::array kVariablesOfUsers = {"PUSHPULL_CHANNEL",
                                                 "PUSHPULL_LOG_LEVEL",
                                                 "PUSHPULL_PAGE_HOSTS",
                                                 "PUSHPULL_PAYLOAD_CHECKSUM",
                                                 "PUSHPULL_SOCKET_BUFFER_BYTES",
                                                 "PUSHPULL_UNSENT_BYTES"};

struct SyncSpec {
  SyncMode mode = SyncMode::kSync;
  int staleness = 0;           // steps; only with kBounded
  int backup_workers = 0;      // only with kSync; fewer than the workers
  bool deterministic = false;  // contributions are added in the order of the workers
  // In kAsync and kBounded a gradient n > 1 versions late is applied at 1/n of the learning rate.
  bool scale_by_staleness = false;
  bool gated = false;  // one decision for all chunks of a step before any is applied
  LocalReduce local_reduce = LocalReduce::kNone;  // only with kSync
  bool noise_scale = false;                       // measures the noise scale of gradients
  NonFinitePolicy non_finite = NonFinitePolicy::kFail;
  std::chrono::seconds stall{10};  // a step that waits this long is reported: worker, tensor, step
  StallPolicy on_stall = StallPolicy::kWarn;  // what happens besides the report
  friend bool operator==(const SyncSpec&, const SyncSpec&) = default;
};

// What a job takes from the checkpoint that it starts from.
enum class RestoreScope : std::uint8_t {
  kAll,     // everything: it continues
  kValues,  // the values of the tensors alone, as its initial ones
};

struct CheckpointSpec {
  std::string claim;  // PersistentVolumeClaim; exactly one of claim and uri
  std::string uri;
  std::string path = "/";  // inside the claim
  std::chrono::seconds every{600};
  int keep = 3;
  std::string restore_from = "latest";
  RestoreScope restore = RestoreScope::kAll;
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

struct ScalingSpec {
  std::chrono::seconds drain_timeout{300};
  DrainTimeoutPolicy on_drain_timeout = DrainTimeoutPolicy::kBlock;
  std::chrono::seconds cooldown{0};  // between two changes of the servers
  friend bool operator==(const ScalingSpec&, const ScalingSpec&) = default;
};

// Exactly one of the two is given.
struct ExitCodeMatch {
  std::vector<int> in = {};  // 1 to 255; a signal counts as 128 + its number
  std::vector<int> not_in = {};
  friend bool operator==(const ExitCodeMatch&, const ExitCodeMatch&) = default;
};

// Matches by exactly one of exit_codes and reason, for one role or all.
struct RestartRule {
  std::optional<JobRole> role = {};
  std::optional<ExitCodeMatch> exit_codes = {};
  std::optional<ExitReason> reason = {};
  RestartAction action = RestartAction::kRestartPod;
  friend bool operator==(const RestartRule&, const RestartRule&) = default;
};

// Limits for each member of a role, in place of RestartSpec::backoff_limit.
struct RoleLimits {
  std::optional<int> servers = {};
  std::optional<int> workers = {};
  std::optional<int> coordinator = {};
  friend bool operator==(const RoleLimits&, const RoleLimits&) = default;
};

struct RestartSpec {
  int backoff_limit = 6;  // counted restarts of each member, and of all at once
  RoleLimits role_limits = {};
  std::chrono::seconds initial_delay{10};
  std::chrono::seconds max_delay{300};
  std::chrono::seconds healthy_after{600};  // after this long, delays start over at the first
  std::vector<RestartRule> rules = {};      // at most 16; the first that matches decides
  SuccessPolicy success_policy = SuccessPolicy::kAllWorkers;
  std::chrono::seconds node_lost_after{60};
  std::chrono::seconds peer_timeout{20};  // a member silent this long counts as dead; 1 to 3,600
  friend bool operator==(const RestartSpec&, const RestartSpec&) = default;
};

struct SchedulingSpec {
  std::string priority_class;
  bool spread_servers = true;
  bool pdb = true;  // a PodDisruptionBudget for the servers
  friend bool operator==(const SchedulingSpec&, const SchedulingSpec&) = default;
};

struct SecuritySpec {
  TlsMode tls = TlsMode::kAuto;
  std::string secret_name;                      // the user's own certificates; only with kAuto
  std::optional<NetworkPolicy> network_policy;  // unset: kIsolated
  friend bool operator==(const SecuritySpec&, const SecuritySpec&) = default;
};

struct TrainingJobSpec {
  std::string runtime_ref;           // name of a TrainingRuntime; empty: none, or already merged
  std::string image;                 // of the workers
  std::vector<std::string> command;  // the worker's program
  std::vector<std::string> args;
  std::vector<EnvVar> env;
  ServersSpec servers;
  WorkersSpec workers;
  CoordinatorSpec coordinator;
  PodDefaults pod_defaults;
  SyncSpec sync;
  std::optional<CheckpointSpec> checkpoint;
  ScalingSpec scaling;
  RestartSpec restart;
  std::optional<std::chrono::seconds> start_deadline;  // until every member is ready
  std::optional<std::chrono::seconds> active_deadline;
  std::optional<std::chrono::seconds> ttl_after_finished;
  CleanupPolicy cleanup = CleanupPolicy::kRunning;
  bool suspend = false;
  std::string managed_by;
  std::optional<SchedulingSpec> scheduling;  // unset: the defaults of SchedulingSpec
  SecuritySpec security;
  friend bool operator==(const TrainingJobSpec&, const TrainingJobSpec&) = default;
};

struct TrainingJob {
  JobMetadata metadata;
  TrainingJobSpec spec;
  friend bool operator==(const TrainingJob&, const TrainingJob&) = default;
};

}  // namespace pushpull
