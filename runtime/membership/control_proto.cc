// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/control_proto.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/printable.h"
#include "runtime/membership/fields_proto.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {
namespace {

using ShardEntry = std::pair<ShardId, ReplicaSet>;

// Quantiles has about 1,750 buckets from 1 ns to 1e6 s.
constexpr int kBucketsMax = 4096;

// The wire form of types that have no members to name.
struct WireStatus {
  uint32_t code = 0;
  std::string text;
};
struct WireBucket {
  int32_t index = 0;
  uint64_t count = 0;
};
struct WireQuantiles {
  std::vector<WireBucket> buckets;
};
struct WireResult {
  std::string name;
  double value = 0;
};
// The number of a save, or why there is none.
struct WireSave {
  absl::Status status;
  uint64_t number = 0;
};
// Likewise for a trace.
struct WireTrace {
  absl::Status status;
  uint64_t number = 0;
};
struct WireTraceParts {
  absl::Status status;
  TraceParts parts;
};

absl::Status CheckForm(const WireBucket& bucket) {
  if (bucket.index >= 0 && bucket.index < kBucketsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(": bucket ", bucket.index, " does not exist"));
}

}  // namespace

// ---- Checks besides counts; the argument's type selects the check ----

static bool IsKnown(ChunkVersions versions) {
  return versions == ChunkVersions::kOfOneStep || versions == ChunkVersions::kOfEachChunk;
}

static bool IsKnown(ChunkCopy::Kind kind) {
  return kind <= ChunkCopy::Kind::kInitial;
}

static bool IsKnown(RebuiltChunk::Source source) {
  return source <= RebuiltChunk::Source::kCheckpoint;
}

static bool IsKnown(WorkerPhase phase) {
  return phase <= WorkerPhase::kLeaving;
}

static bool IsKnown(CulpritKind kind) {
  return kind <= CulpritKind::kLink;
}

static absl::Status CheckForm(ShardId shard) {
  if (IsShard(shard)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(": shard ", shard.value(), " does not exist"));
}

// Members are looked up by binary search.
static absl::Status CheckForm(const View& view) {
  for (size_t i = 1; i < view.members.size(); ++i) {
    const WorkerId worker = view.members[i].worker;
    if (view.members[i - 1].worker < worker) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("members[", i, "]: ", ToString(worker), " is listed twice or out of order"));
  }
  return absl::OkStatus();
}

namespace wire {

// ---- Limits of lists, far above the needs of any job ----

template <typename T, typename... Types>
concept OneOf = (std::is_same_v<T, Types> || ...);

template <OneOf<TensorSpec, PlacedTensor> T>
inline constexpr int kCountMax<T> = 1 << 20;
template <>
inline constexpr int kCountMax<int64_t> = 32;  // dims of a tensor
template <OneOf<ServerId, ServerEndpoint, ServerStatus, LinkCosts> T>
inline constexpr int kCountMax<T> = kWireServersMax;
template <OneOf<WorkerId, ViewMember, WorkerStatus, LeftOutWorker, RingWorker> T>
inline constexpr int kCountMax<T> = kWireWorkersMax;
template <OneOf<ShardId, ShardEntry, Promise> T>
inline constexpr int kCountMax<T> = kShardCount;
template <OneOf<ChunkId, ChunkCopy, ChunkPlace, RebuiltChunk> T>
inline constexpr int kCountMax<T> = kTableBytesMax / kChunkBytes;
template <>
inline constexpr int kCountMax<ChunkFileSummary> = 4096;  // one per lane
template <>
inline constexpr int kCountMax<GroupMember> = kGroupMembersMax;
template <>
inline constexpr int kCountMax<LossPoint> = 65536;
template <>
inline constexpr int kCountMax<WireResult> = WorkerStats::kResultsMax;
template <>
inline constexpr int kCountMax<WireBucket> = kBucketsMax;
template <>
inline constexpr int kCountMax<Step> = JobStatus::kUnevenStepsMax;
template <>
inline constexpr int kCountMax<Culprit> = JobStatus::kCulpritsMax;
template <>
inline constexpr int kCountMax<ResizeStatus> = JobStatus::kResizesMax;
template <>
inline constexpr int kCountMax<MemberRack> = JobSize::kRacksMax;
template <>
inline constexpr int kCountMax<StateLoss> = JobStatus::kStateLossesMax;
template <OneOf<TracedPush, TracedSpan, TracedTensor> T>
inline constexpr int kCountMax<T> = TraceReport::kPushesMax;
template <>
inline constexpr int kCountMax<TracedClock> = kWireServersMax;
template <>
inline constexpr int kCountMax<TraceReport> = kWireWorkersMax;

// ---- Types without members of their own ----

template <>
struct Surrogate<absl::Status> {
  using Type = WireStatus;
  static Type From(const absl::Status& status) {
    return {.code = static_cast<uint32_t>(status.code()), .text = std::string(status.message())};
  }
  static absl::Status To(const Type& status) { return StatusFromCode(status.code, status.text); }
};

template <>
struct Surrogate<Quantiles> {
  using Type = WireQuantiles;
  static Type From(const Quantiles& quantiles) {
    Type result;
    for (const auto& [index, count] : quantiles.buckets())
      result.buckets.push_back({.index = index, .count = count});
    return result;
  }
  static Quantiles To(const Type& quantiles) {
    std::map<int32_t, uint64_t> buckets;
    for (const WireBucket& bucket : quantiles.buckets) buckets[bucket.index] += bucket.count;
    return Quantiles::FromBuckets(std::move(buckets));
  }
};

template <>
struct Surrogate<std::map<std::string, double>> {
  using Type = std::vector<WireResult>;
  static Type From(const std::map<std::string, double>& results) {
    Type list;
    for (const auto& [name, value] : results) list.push_back({.name = name, .value = value});
    return list;
  }
  static std::map<std::string, double> To(const Type& list) {
    std::map<std::string, double> results;
    for (const WireResult& result : list) results[result.name] = result.value;
    return results;
  }
};

// ---- The fields of every message ----

#define F(member) PUSHPULL_WIRE_FIELD(member)
// clang-format off

PUSHPULL_WIRE(WireStatus, F(code), F(text));
PUSHPULL_WIRE(WireBucket, F(index), F(count));
PUSHPULL_WIRE(WireQuantiles, F(buckets));
PUSHPULL_WIRE(WireResult, F(name), F(value));
PUSHPULL_WIRE(WireSave, F(status), F(number));

PUSHPULL_WIRE(Epoch, F(term), F(counter));
PUSHPULL_WIRE(ReplicaSet, F(epoch), F(primary), F(followers), F(learners));
PUSHPULL_WIRE(ShardEntry, Field("shard", &T::first), Inline(&T::second));
PUSHPULL_WIRE(OptimizerSpec, F(kind), F(learning_rate), F(momentum), F(nesterov), F(weight_decay), F(beta1), F(beta2), F(epsilon));
PUSHPULL_WIRE(RowSpec, F(init), F(scale), F(seed), F(evict_after));
PUSHPULL_WIRE(TensorSpec, F(name), F(dims), F(dtype), F(reduction), F(optimizer), F(codec), F(clip_norm), F(rows));
PUSHPULL_WIRE(PlacedTensor, F(id), F(spec), F(first_chunk), Field("shards", &T::shards, kCountMax<ChunkId>));  // one for each chunk
PUSHPULL_WIRE(Consistency, F(mode), F(staleness), F(from_step), F(steps_skipped), F(backup_workers), F(gated));
PUSHPULL_WIRE(ViewMember, F(worker), F(incarnation), F(from_step), F(end_step), F(is_released), F(group));
PUSHPULL_WIRE(View, F(number), F(members), F(consistency).OrDefault());
PUSHPULL_WIRE(DesiredSize, F(revision), F(servers), F(workers), F(global_batch));
PUSHPULL_WIRE(Promise, Joined("entry", &T::shard, &T::entry), F(seq), F(is_full));
PUSHPULL_WIRE(ChunkPlace, F(chunk), F(version), F(offset), F(bytes), F(checksum));
PUSHPULL_WIRE(ChunkFileSummary, F(name), F(bytes), F(checksum), F(chunks));
PUSHPULL_WIRE(ChunkCopy, F(chunk), F(kind), F(version), F(known), F(checksum));
PUSHPULL_WIRE(RebuiltChunk, F(chunk), F(source), F(version), F(checksum));
PUSHPULL_WIRE(ServerEndpoint, F(server), F(incarnation), F(data_address), F(lanes));
PUSHPULL_WIRE(LossPoint, F(step), F(loss), F(samples));
PUSHPULL_WIRE(Stall, F(step), F(tensor), F(missing), F(seconds), F(waiting), F(detail), F(collective));
PUSHPULL_WIRE(ServerStats, F(bytes_owned), F(chunks), F(lowest_version), F(highest_version), F(contributors_min),
              F(contributors_max), F(duplicates), F(bytes_replicated), F(bytes_copied), F(stall),
              F(busy_seconds), F(batch), F(gradient_squares), F(gradient_variance));
PUSHPULL_WIRE(WorkerActivity, F(phase), F(seconds), F(step), F(subject), F(servers), F(peer));
PUSHPULL_WIRE(LinkCosts, F(server), F(bytes), F(link_seconds), F(server_seconds));
PUSHPULL_WIRE(StepCosts, F(steps), F(step_seconds), F(own_seconds), F(wait_seconds), F(links));
PUSHPULL_WIRE(WorkerStats, F(step), F(samples), F(bytes_pushed), F(bytes_pulled), F(resends), F(sync_seconds),
              F(phase_seconds), F(losses), F(losses_end), F(results), Field("uneven_steps", &T::uneven_steps, T::kUnevenStepsMax), F(costs), F(activity), F(batch), F(steps_made), F(is_ending));

// FromMember
PUSHPULL_WIRE(RegisterServer, F(server), F(incarnation), F(data_address), F(metrics_address), F(lanes), F(weight), F(pid), F(promised), F(rack));
PUSHPULL_WIRE(RegisterWorker, F(worker), F(incarnation), F(metrics_address), F(pid), F(promised), F(is_member), F(ring_address), F(rack), F(group_address), F(node));
PUSHPULL_WIRE(RegisterTensors, F(tensors));
PUSHPULL_WIRE(TensorsInstalled, F(table_version));
PUSHPULL_WIRE(ViewAnswer, F(number), F(is_accepted), F(lowest_free_step));
PUSHPULL_WIRE(Promises, F(promises));
PUSHPULL_WIRE(CaughtUp, F(shard), F(epoch), F(member));
PUSHPULL_WIRE(HandedOver, Joined("entry", &T::shard, &T::entry));
PUSHPULL_WIRE(StepsHeld, F(round), F(next_step), F(is_drained));
PUSHPULL_WIRE(Heartbeat, F(stats));
PUSHPULL_WIRE(Leave, F(end_step), F(stats), F(is_released));
PUSHPULL_WIRE(DrainRequest);
PUSHPULL_WIRE(Failure, F(status));
PUSHPULL_WIRE(Captured, F(attempt), F(status), F(highest_version), F(files));
PUSHPULL_WIRE(Restored, F(status));
PUSHPULL_WIRE(ServerReport, F(term), F(tensors), F(entries), F(promises), F(active), F(proposed), F(desired));
PUSHPULL_WIRE(WorkerReport, F(term), F(entries), F(step), F(desired));
PUSHPULL_WIRE(RingMark, F(made_in), F(step));
PUSHPULL_WIRE(RingStopped, F(epoch), F(mark));
PUSHPULL_WIRE(RingNews, F(epoch), F(status));
PUSHPULL_WIRE(ShardCopies, F(round), F(shard), F(chunks));
PUSHPULL_WIRE(Rebuilt, Joined("entry", &T::shard, &T::entry), F(status), F(has_optimizer_state), F(state_step), F(state_problem));

PUSHPULL_WIRE(TracedPush, F(server), F(chunk), F(step), F(ready), F(taken_up), F(encode_ns), F(sent), F(received), F(applied), F(received_at),
              F(server_queue_ns), F(sum_ns), F(wait_ns), F(optimize_ns), F(replicate_ns), F(published_at));
PUSHPULL_WIRE(TracedSpan, F(name), F(begin), F(end));
PUSHPULL_WIRE(TracedClock, F(server), F(offset_ns));
PUSHPULL_WIRE(TracedTensor, F(name), F(first_chunk));
PUSHPULL_WIRE(TraceReport, F(number), F(worker), F(clocks), F(tensors), F(pushes), F(spans), F(left_out), F(is_last));

// ToMember
PUSHPULL_WIRE(JobSettings, F(job), F(workers), F(servers), F(replication), F(global_batch), F(deterministic), F(noise_scale),
              F(non_finite), F(scale_by_staleness), Field("stall_milliseconds", &T::stall), F(keeps_copies),
              Field("coordinator_timeout_milliseconds", &T::coordinator_timeout));
PUSHPULL_WIRE(Welcome, F(term), Inline(&T::settings), F(heartbeat_milliseconds));
PUSHPULL_WIRE(InstallTensors, F(table_version), F(tensors));
PUSHPULL_WIRE(SetReplicas, F(entries), F(are_first));
PUSHPULL_WIRE(Handover, F(current), Joined("next", &T::shard, &T::next));
PUSHPULL_WIRE(SetServers, F(servers), F(desired));
PUSHPULL_WIRE(ProposeView, F(view));
PUSHPULL_WIRE(ActivateView, F(view));
PUSHPULL_WIRE(HoldSteps, F(round), F(until));
PUSHPULL_WIRE(ResumeSteps, F(round));
PUSHPULL_WIRE(TensorsRegistered, F(tensors), F(start_step), F(is_fresh));
PUSHPULL_WIRE(Release, F(is_released));
PUSHPULL_WIRE(StopRing, F(epoch));
PUSHPULL_WIRE(RingWorker, F(worker), F(address), F(rack));
PUSHPULL_WIRE(FormRing, F(epoch), F(workers), F(token), F(source), F(mark), F(copies), F(is_fresh), F(restore_from), F(values_only));
PUSHPULL_WIRE(GroupMember, F(worker), F(incarnation), F(from_step), F(address));
PUSHPULL_WIRE(SetGroup, F(members));
PUSHPULL_WIRE(StepWaits, F(missing), F(what), F(step));
PUSHPULL_WIRE(Stop, F(status), F(term));
PUSHPULL_WIRE(Capture, F(attempt), F(step), F(versions), F(is_last), F(folder), F(part), F(parts));
PUSHPULL_WIRE(EndCapture, F(attempt));
PUSHPULL_WIRE(Restore, F(folder), F(sequence), F(shards), F(version), F(values_only));
PUSHPULL_WIRE(Collect, F(term));
PUSHPULL_WIRE(CollectCopies, F(round), F(entries));
PUSHPULL_WIRE(OfferCopies, Joined("entry", &T::shard, &T::entry), F(chunks));
PUSHPULL_WIRE(RebuildShard, Joined("entry", &T::shard, &T::entry), F(chunks), F(checkpoint));
PUSHPULL_WIRE(TraceSteps, F(number), F(steps), F(pushes_max), Field("within_milliseconds", &T::within));

// Requests of commands, and the job's status
PUSHPULL_WIRE(TraceRequest, F(steps), F(seconds));
PUSHPULL_WIRE(TraceParts, F(reports), F(next), F(missing), F(is_over));
PUSHPULL_WIRE(WireTrace, F(status), F(number));
PUSHPULL_WIRE(WireTraceParts, F(status), Inline(&T::parts));
PUSHPULL_WIRE(MemberRack, F(is_server), F(index), F(rack));
PUSHPULL_WIRE(LeftOutWorker, F(worker), F(why));
PUSHPULL_WIRE(JobSize, F(servers), F(workers), F(global_batch), F(racks), F(left_out));
PUSHPULL_WIRE(ModeChange, F(mode), F(staleness), F(backup_workers), F(gated));
PUSHPULL_WIRE(ServerStatus, F(server), F(is_alive), F(data_address), F(metrics_address), F(pid), F(stats), F(step_seconds), F(rack));
PUSHPULL_WIRE(WorkerStatus, F(worker), F(is_alive), F(is_member), F(has_left), F(was_released), F(metrics_address), F(pid), F(step), F(joined_seconds), F(activity), F(lateness_seconds), F(rack), F(steps_made), F(left_out));
PUSHPULL_WIRE(Culprit, F(kind), F(worker), F(server), F(seconds), F(share));
PUSHPULL_WIRE(ResizeStatus, F(step), F(from), F(to), F(is_settled), F(is_final), F(seconds), F(pause_seconds), F(moved_bytes));
PUSHPULL_WIRE(CheckpointStatus, F(step), F(saved), F(failures), F(failure), F(requested), F(finished), F(succeeded), F(seconds), F(restored_step), F(problem));
PUSHPULL_WIRE(StateLoss, F(servers), F(shards), F(chunks), F(is_waiting), F(is_repaired), F(returned), F(lowest_version),
              F(highest_version), F(from_workers), F(from_checkpoint), F(reinitialized), F(outdated), F(has_optimizer_state),
              F(state_step), F(seconds));
PUSHPULL_WIRE(JobStatus, F(job), F(phase), F(failure), F(failure_exit_code), F(term), F(epoch), F(view), F(desired_servers),
              F(desired_workers), F(shards_moving), F(step), F(samples), F(seconds), F(bytes_pushed), F(bytes_pulled),
              F(bytes_replicated), F(resends), F(contributors_min), F(contributors_max), F(uneven_steps),
              F(newest_uneven_steps), F(sync_seconds), F(phase_seconds), F(losses), F(results), F(servers), F(workers),
              F(checkpoint), F(consistency).OrDefault(), F(is_mode_changing), F(mode_problem), F(stall), F(resizes),
              F(state_losses), F(culprits), F(batch), F(global_batch),
              F(noise_scale), F(shards_in_one_rack), F(steps_made),
              F(lost_server), F(can_resume), F(failed_seconds), F(began_step),
              F(step_before), F(steps_lost));

// clang-format on
#undef F

}  // namespace wire

namespace {

template <typename T>
absl::StatusOr<T> Read(const google::protobuf::Message& message) {
  T value;
  PUSHPULL_RETURN_IF_ERROR(wire::DecodeFields(message, value));
  return value;
}

template <typename Variant>
absl::StatusOr<Variant> ReadOneof(const google::protobuf::Message& message) {
  Variant value;
  PUSHPULL_RETURN_IF_ERROR(wire::DecodeOneof(message, "message", value));
  return value;
}

// Of an address.
constexpr size_t kNameBytesMax = 300;
// Why a worker takes no part: one for each worker.
constexpr size_t kReasonBytesMax = 500;

void Show(std::string& text, size_t max_bytes = kPrintableBytesMax) {
  text = Printable(text, max_bytes);
}

// The texts that commands print and the operator copies into statuses and events.
void Show(JobStatus& status) {
  Show(status.job, kNameBytesMax);
  Show(status.failure);
  Show(status.mode_problem);
  Show(status.checkpoint.failure);
  if (status.stall) {
    Show(status.stall->tensor, kNameBytesMax);
    Show(status.stall->detail);
    Show(status.stall->collective, kNameBytesMax);
  }
  for (ServerStatus& server : status.servers) {
    Show(server.data_address, kNameBytesMax);
    Show(server.metrics_address, kNameBytesMax);
    Show(server.rack, kNameBytesMax);
  }
  for (WorkerStatus& worker : status.workers) {
    Show(worker.metrics_address, kNameBytesMax);
    Show(worker.rack, kNameBytesMax);
    Show(worker.left_out, kReasonBytesMax);
    Show(worker.activity.subject, kNameBytesMax);
  }
  for (const auto& [name, value] : std::exchange(status.results, {}))
    status.results[Printable(name, WorkerStats::kResultNameBytesMax)] = value;
}

}  // namespace

absl::Status StatusFromCode(uint32_t code, absl::string_view text) {
  if (code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated))
    return absl::UnknownError(absl::StrCat("code ", code, ": ", Printable(text)));
  return absl::Status(static_cast<absl::StatusCode>(code), Printable(text));
}

void ToProto(const FromMember& message, v1::FromMember& out) {
  wire::EncodeOneof(message, "message", out);
}

void ToProto(const ToMember& message, v1::ToMember& out) {
  wire::EncodeOneof(message, "message", out);
}

void ToProto(const JobStatus& status, v1::JobStatus& out) {
  wire::EncodeFields(status, out);
}

void ToProto(const JobSize& size, v1::ResizeRequest& out) {
  wire::EncodeFields(size, out);
}

void ToProto(const ModeChange& change, v1::SetModeRequest& out) {
  wire::EncodeFields(change, out);
}

void ToProto(const absl::Status& status, v1::Status& out) {
  wire::EncodeFields(wire::Surrogate<absl::Status>::From(status), out);
}

void ToProto(const absl::StatusOr<uint64_t>& number, v1::SaveCheckpointResponse& out) {
  wire::EncodeFields(WireSave{.status = number.status(), .number = number.value_or(0)}, out);
}

void ToProto(const TraceRequest& request, v1::TraceRequest& out) {
  wire::EncodeFields(request, out);
}

void ToProto(const absl::StatusOr<uint64_t>& number, v1::StartTraceResponse& out) {
  wire::EncodeFields(WireTrace{.status = number.status(), .number = number.value_or(0)}, out);
}

void ToProto(const absl::StatusOr<TraceParts>& parts, v1::TakeTraceResponse& out) {
  wire::EncodeFields(
      WireTraceParts{.status = parts.status(), .parts = parts.value_or(TraceParts())}, out);
}

absl::StatusOr<FromMember> FromProto(const v1::FromMember& message) {
  absl::StatusOr<FromMember> read = ReadOneof<FromMember>(message);
  if (!read.ok()) return read;
  if (auto* server = std::get_if<RegisterServer>(&*read)) {
    Show(server->data_address, kNameBytesMax);
    Show(server->metrics_address, kNameBytesMax);
    Show(server->rack, kNameBytesMax);
  } else if (auto* worker = std::get_if<RegisterWorker>(&*read)) {
    Show(worker->metrics_address, kNameBytesMax);
    Show(worker->ring_address, kNameBytesMax);
    Show(worker->rack, kNameBytesMax);
  } else if (auto* heartbeat = std::get_if<Heartbeat>(&*read)) {
    if (auto* stats = std::get_if<WorkerStats>(&heartbeat->stats))
      Show(stats->activity.subject, kNameBytesMax);
  }
  return read;
}

absl::StatusOr<ToMember> FromProto(const v1::ToMember& message) {
  return ReadOneof<ToMember>(message);
}

absl::StatusOr<JobStatus> FromProto(const v1::JobStatus& status) {
  absl::StatusOr<JobStatus> read = Read<JobStatus>(status);
  if (read.ok()) Show(*read);
  return read;
}

absl::StatusOr<JobSize> FromProto(const v1::ResizeRequest& request) {
  absl::StatusOr<JobSize> size = Read<JobSize>(request);
  if (!size.ok()) return size;
  for (MemberRack& member : size->racks) Show(member.rack, kNameBytesMax);
  for (LeftOutWorker& worker : size->left_out) Show(worker.why, kReasonBytesMax);
  return size;
}

absl::StatusOr<ModeChange> FromProto(const v1::SetModeRequest& request) {
  return Read<ModeChange>(request);
}

absl::StatusOr<TraceRequest> FromProto(const v1::TraceRequest& request) {
  return Read<TraceRequest>(request);
}

absl::StatusOr<TraceParts> FromProto(const v1::TakeTraceResponse& response) {
  PUSHPULL_ASSIGN_OR_RETURN(WireTraceParts read, Read<WireTraceParts>(response));
  for (TraceReport& report : read.parts.reports) {
    for (TracedTensor& tensor : report.tensors) Show(tensor.name, TraceReport::kNameBytesMax);
    for (TracedSpan& span : report.spans) Show(span.name, TraceReport::kNameBytesMax);
  }
  return std::move(read.parts);
}

absl::Status FromProto(const v1::Status& status) {
  return StatusFromCode(status.code(), status.text());
}

}  // namespace pushpull
